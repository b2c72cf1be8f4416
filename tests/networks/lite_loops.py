"""Loops in written TFLite files: what LiteRT makes of a WHILE and of its steps written out, bit for bit.

    python -m tests.networks.lite_loops FIRST BEHIND [long]

prints the seeds of random loops of which anything differs, and how many were compared.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import replace

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.export_tflite.export import LiteModel, to_tflite
from npuflow.export_tflite.judge import LiteSession
from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.loops import loops
from npuflow.ir.unroll import written_out
from npuflow.quantise.config import Activations, Quantize
from npuflow.whole.export_c.network import network_of
from npuflow.whole.export_c.vectors import random_samples
from tests.networks import random_loops
from tests.networks.random_loops import LONG, quantised, subject

TARGET = Target(numerics=Numerics(wide_acc_bits=48, weight_zero_point=True, weight_bits=(8, 16)))
WIDE = Activations(bits=16, symmetric=True, signed=True)


def scheme(seed: int) -> Quantize:
    """One that TFLite has: codes of 8 bits, or of 16 around 0."""
    rng = random.Random(seed)
    narrow = Activations(symmetric=rng.random() < 0.3, signed=rng.choice((None, True)))
    return Quantize(activations=WIDE if rng.random() < 0.3 else narrow)


def drawn(seed: int) -> Graph | None:
    """The integer graph of a seed; None: its values are not finite."""
    one = subject(seed)
    return None if one is None else quantised(replace(one, config=scheme(seed), target=TARGET))


def both(graph: Graph) -> tuple[LiteModel, LiteModel]:
    """The file of a graph, and that of its steps written out."""
    return to_tflite(graph), to_tflite(written_out(graph))



def different(graph: Graph, models: tuple[LiteModel, LiteModel], count: int = 2) -> list[str]:
    """Outputs that the two forms give different codes for, on random codes."""
    sessions, found = [LiteSession(m) for m in models], dict[str, None]()
    for given, _ in random_samples(network_of(graph), TARGET.numerics, count, interpreted=0):
        mine, wanted = (session.run(given) for session in sessions)
        assert mine.keys() == wanted.keys() and mine
        found |= dict.fromkeys(name for name in mine if not np.array_equal(mine[name], wanted[name]))
    return list(found)


def compared(first: int, behind: int) -> str:
    """How many seeds were compared, and differ; those are printed."""
    count, kinds = Counter[str](), Counter[str]()
    for seed in range(first, behind):
        graph = drawn(seed)
        try:
            models = both(graph) if graph is not None else None
        except ModelError:
            models = None
        if graph is None or models is None or not loops(graph):
            count["without a file or loop"] += 1
            continue
        wrong = different(graph, models)
        kinds["WHILE"] += models[0].operators.get("WHILE", 0)
        count["compared"] += 1
        count["differ"] += bool(wrong)
        if wrong:
            print(f"seed {seed}: {', '.join(wrong)}", flush=True)
    listed = ", ".join(f"{n} {what}" for what, n in count.items())
    return f"{behind - first} seeds from {first} on: {listed}; {kinds['WHILE']} WHILE"


if __name__ == "__main__":
    random_loops.STEPS = LONG if "long" in sys.argv else random_loops.STEPS
    print(compared(int(sys.argv[1]), int(sys.argv[2])))
