"""Generated C beside onnxruntime fp32, one thread: milliseconds of a run, in turn.

    python benchmarks/export_c.py [--bits 8|16] [--rounds N] [--written-out] resnet50 FILE.onnx lstm256-200

Networks are names of `shapes.py`, files, or lstm256-STEPS: two LSTM(256), which onnxruntime runs by its own
operator. Ranges are those of one random sample, the target is edge-4t with wide sums. Networks that are not
whole on the NPU are listed with the number of layers that are not. That the codes are right is measured by
`c_exact.py`. `--written-out`: loops step after step.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from c_exact import built, integers, loaded, ran, wide_sums
from recurrent import two_layers

from npuflow.base.errors import NpuflowError
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.ir.graph import Graph
from npuflow.ir.unroll import written_out
from npuflow.onnx.export import export_model
from npuflow.rewrite.rewrite import rewrite
from npuflow.run.interpret import host_session
from npuflow.whole.export_c import files
from npuflow.whole.export_c.compiler import measured
from npuflow.whole.export_c.network import network_of
from npuflow.whole.export_c.program import program_of
from npuflow.whole.export_c.vectors import random_samples
from tests.networks.subjects import Subject, subject

TIMED = (("-O3",), ("-O3", "-mavx2"))


LAYERS = "lstm256-"


def given(path: str) -> tuple[Subject, bytes]:
    """A network with one random sample, and the model that onnxruntime runs."""
    if not path.startswith(LAYERS):
        one = loaded(path)
        return one, export_model(one.graph)
    model = two_layers(int(path.removeprefix(LAYERS)))
    return subject(path, rewrite(FRONTENDS["onnx"]().read(model, Bindings()).graph).graph), model


def measure(path: str, bits: int, rounds: int, change: Callable[[Graph], Graph]) -> None:
    target, name, (one, model) = wide_sums("edge-4t"), Path(path).stem, given(path)
    try:
        network = network_of(change(integers(one, target, bits)))
        program = program_of(network, target.numerics, "net")
    except NpuflowError as error:
        print(f"| {name} | {bits} | {error.message[:100]} |", flush=True)
        return
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        files.write(program, folder, random_samples(network, target.numerics, 2))
        sizes = f"{program.constant_bytes / 1e6:.2f} MB constants, {program.arena / 1e6:.2f} MB arena"
        if (size := measured(folder, "net")) is not None:
            sizes += f", {size.code / 1e3:.1f} kB code"
        session, programs = host_session(model), [built(folder, "gcc", f) for f in TIMED]
        session.run(None, dict(one.feeds))
        times: list[list[float]] = [[] for _ in range(1 + len(programs))]
        for _ in range(rounds):
            for _ in range(4):
                begun = time.process_time()
                session.run(None, dict(one.feeds))
                times[0].append(1e3 * (time.process_time() - begun))
            for k, path in enumerate(programs):
                times[1 + k].append(ran(path, 4 if k else 1)[1])
        fp32, scalar, avx2 = (statistics.median(t) for t in times)
        reported = f"{fp32:.1f} | {avx2:.1f} | {avx2 / fp32:.2f} | {scalar:.1f} | {scalar / fp32:.1f}"
        print(f"| {name} | {bits} | {reported} | {sizes} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--written-out", action="store_true")
    chosen = parser.parse_args()
    for path in chosen.networks:
        measure(path, chosen.bits, chosen.rounds, written_out if chosen.written_out else lambda graph: graph)


if __name__ == "__main__":
    main()
