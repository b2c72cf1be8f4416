"""Random graphs with loops as C programs, compared with the reference interpreter.

    python -m tests.export_c.random_loops FIRST BEHIND [FLAG ...]

prints which seeds differ, and how many there were.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from npuflow.base.errors import NpuflowError
from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.loops import has_loops
from npuflow.place.islands import PlacementTable
from npuflow.place.place import place
from npuflow.quantise.config import Activations, Quantize
from npuflow.testing.quantised import quantize_graph
from tests.export_c.harness import UB, Case, case, check
from tests.networks.onnx_text import TARGET
from tests.networks.random_loops import Drawn, LoopSubject, quantised, subject

TOGETHER = 40  # programs in a library
WIDE = replace(TARGET, numerics=replace(TARGET.numerics, wide_acc_bits=48))


def cases(seeds: Iterable[int], drawn: Drawn = subject) -> Iterator[Case]:
    """The programs of seeds whose loops are whole in integers, constants in every third apart."""
    for seed in seeds:
        one = drawn(seed)
        for graph, numerics in _graphs(one, seed) if one is not None else ():
            try:
                made = case(graph, numerics, seed, 2, 1 << 30 if seed % 3 else 0)
            except NpuflowError:
                continue  # layers on the host, or without a form on integers
            if has_loops(graph):
                yield made
                break


def _graphs(one: LoopSubject, seed: int) -> Iterator[tuple[Graph, Numerics]]:
    """By the seed's own target and scheme; on one that has every operator."""
    yield quantised(one), one.target.numerics
    held = {v: a for v in one.graph.values if (a := one.graph.const(v)) is not None}
    ranges = {v: (float(a.min()), float(a.max())) for v, a in {**held, **one.values}.items()}
    yield whole(one.graph, ranges, random.Random(seed).choice((8, 8, 12, 16))), WIDE.numerics


def whole(
    graph: Graph, ranges: dict[str, tuple[float, float]], bits: int = 8, target: Target = WIDE
) -> Graph:
    """Quantised, all on the NPU that can be."""
    placed, scheme = place(graph, target, PlacementTable(min_macs=0)), Quantize(activations=Activations(bits))
    return quantize_graph(graph, placed, ranges, scheme, target.numerics).graph


def main(first: int, behind: int, flags: list[str]) -> None:
    found = list(cases(range(first, behind)))
    for at in range(0, len(found), TOGETHER):
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(found[at : at + TOGETHER], Path(folder), flags or ("-O0", *UB))
            except AssertionError as error:
                print(str(error)[:1000], flush=True)
    print(f"{behind - first} seeds, {len(found)} with all loops in integers")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
