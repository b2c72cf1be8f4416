"""Generated C beside onnxruntime fp32, one thread, and bit for bit beside the reference.

    python benchmarks/export_c.py [--samples N] [--bits 8|16] [--rounds N] resnet50 MODEL.onnx ...

Networks are names of `shapes.py` or files; ranges are those of one random sample, the target is edge-4t with
wide sums. Every compiler on the path, -O0 and -O3, UBSan and AVX2: codes that differ over N random samples;
with --rounds the milliseconds of a run beside onnxruntime's, in turn. Networks that are not whole on the NPU
are listed with the number of layers that are not. `--macs` bounds the products of all samples of a network.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from shapes import NETWORKS, of_file, target_named

from npuflow.base.errors import NpuflowError
from npuflow.engine.export_c import files
from npuflow.engine.export_c.compiler import compilers
from npuflow.engine.export_c.network import network_of
from npuflow.engine.export_c.program import program_of
from npuflow.engine.export_c.vectors import random_samples
from npuflow.engine.interpret import host_session
from npuflow.engine.place import place
from npuflow.engine.quantize.config import Activations, Quantize
from npuflow.engine.quantize.graph import quantize_graph
from npuflow.engine.to_onnx import export_model
from npuflow.ir.macs import node_macs
from tests.networks.subjects import Subject, subject

# of inputs with free dimensions
SHAPES = {
    "ppocrv4-rec": {"x": (1, 3, 48, 320)},
    "ppocrv4-det": {"x": (1, 3, 320, 320)},
    "attacut-c": {"input": (1, 96)},
}
UB = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
FLAGS = (("-O0",), ("-O3",), ("-O3", "-mavx2"), ("-O1", *UB), ("-O2", "-mavx2", *UB))
TIMED = (("-O3",), ("-O3", "-mavx2"))


def built(folder: Path, compiler: str, flags: tuple[str, ...]) -> Path:
    made = folder / "-".join(("test", compiler, *(f.strip("-") for f in flags))).replace("=", "-")
    words = [compiler, "-std=c99", *flags, "-o", str(made), "net.c", "net_test.c"]
    subprocess.run(words, cwd=folder, check=True)
    return made


def ran(program: Path, rounds: int = 0) -> tuple[int, float]:
    """Codes that differ, and milliseconds."""
    words = [str(program), "net_test.bin", str(rounds)]
    reported = subprocess.run(words, cwd=program.parent, capture_output=True, text=True, check=False).stdout
    differ, ms = re.search(r"(\d+) codes differ", reported), re.search(r"([\d.]+) ms", reported)
    return int(differ[1]) if differ else -1, float(ms[1]) if ms else 0.0


def measure(name: str, one: Subject, samples: int, bits: int, rounds: int, most: float) -> None:
    target = target_named("edge-4t")
    numerics = replace(target.numerics, wide_acc_bits=max(48, target.numerics.acc_bits))
    placement = place(one.graph, replace(target, numerics=numerics))
    config = Quantize(activations=Activations(bits=bits))
    try:
        done = quantize_graph(one.graph, placement.on_npu, one.ranges, config, numerics)
        network = network_of(done.graph)
        program = program_of(network, numerics, "net")
    except NpuflowError as error:
        print(f"| {name} | {bits} | {error.message[:100]} |", flush=True)
        return
    macs = max(1, sum(node_macs(done.graph, n) for n in network.nodes))
    samples = max(2, min(samples, int(most / macs))) if most else samples
    with tempfile.TemporaryDirectory() as place_:
        folder = Path(place_)
        files.write(program, folder, random_samples(network, numerics, samples))
        sizes = f"{program.constant_bytes / 1e6:.2f} MB constants, {program.arena / 1e6:.2f} MB arena"
        if not rounds:
            several = [c for c in ("gcc", "clang") if c in compilers()]
            found = {(c, f): ran(built(folder, c, f))[0] for c in several for f in FLAGS}
            wrong = [f"{c} {' '.join(f)}: {n}" for (c, f), n in found.items() if n]
            reported = f"{samples} samples, {len(found)} builds: {'; '.join(wrong) or 'none differs'}"
            print(f"| {name} | {bits} | {reported} | {sizes} |", flush=True)
            return
        session, programs = host_session(export_model(one.graph)), [built(folder, "gcc", f) for f in TIMED]
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
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--macs", type=float, default=0.0)
    chosen = parser.parse_args()
    for name in chosen.networks:
        try:
            graph = (
                NETWORKS[name]()[0] if name in NETWORKS else of_file(name, SHAPES.get(Path(name).stem, {}))[0]
            )
            one = subject(name, graph)
        except Exception as error:  # a model whose random sample no runtime takes is one line of the table
            print(f"| {Path(name).stem} | {chosen.bits} | {str(error).splitlines()[0][:100]} |", flush=True)
            continue
        measure(Path(name).stem, one, chosen.samples, chosen.bits, chosen.rounds, chosen.macs)


if __name__ == "__main__":
    main()
