"""Loops in exported TFLite files: size and time of a WHILE beside its steps written out.

    python benchmarks/tflite_loops.py [--vela PATH] [--seeds N]

Recurrent networks in 8 bits for edge-4t, ranges of one random sample: bytes and operators of both files,
seconds of processor time in LiteRT (the least of three runs of one random input, one thread), with its
reference kernels and with its default ones, and whether both files give the same codes with each; codes of
the WHILE that differ from the program's on two random inputs. Then N random loops of
`tests/networks/lite_loops.py`. Writes its study.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
import study
from ai_edge_litert import interpreter
from export_tflite import vela
from recurrent import model, two_layers
from shapes import target_named

from npuflow.export_tflite.export import LiteModel, to_tflite
from npuflow.export_tflite.judge import judge
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.ir.unroll import written_out
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.rewrite.rewrite import rewrite
from npuflow.rules import Hardware
from npuflow.run.floats import FloatRun
from npuflow.testing.quantised import quantize_graph
from npuflow.whole.export_c.network import network_of
from npuflow.whole.export_c.vectors import random_samples
from tests.networks import lite_loops, random_loops

RUNS = 3
KERNELS = {
    "reference": interpreter.OpResolverType.BUILTIN_REF,
    "default": interpreter.OpResolverType.AUTO,
}
NETWORKS = {
    "LSTM(16) on 8": model,
    "LSTM(16) on 8, both ways": lambda steps: model(steps, directions=2),
    "two LSTM(256) on 64": two_layers,
}
# of which all steps are not written: a file of more than a gigabyte, and 92,012 operators
BEYOND = [("two LSTM(256) on 64", 2000), ("LSTM(16) on 8, both ways", 2000)]
HEAD = """# Loops in exported TFLite files

`python benchmarks/tflite_loops.py`, LiteRT {version}, edge-4t, 8 bits: the file with WHILE beside that of all
steps (`--unroll`; columns "all"). Seconds of one run with WHILE, with LiteRT's reference kernels and with its
default ones (XNNPACK), and how many times as long all steps take. Same: whether both files give the same
codes, with either kernels. Program: codes of the WHILE that differ from the program's on two random inputs,
and by how much at most. All steps of two LSTM(256) over 2,000 would be a file of more than a gigabyte.

| network | steps | bytes | all | operators | all | reference | all | default | all | same | program |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |
"""


def coded(data: bytes, target: Target) -> Graph:
    source = FRONTENDS["onnx"]().read(data, Bindings()).graph
    graph = rewrite(source, hardware=Hardware.of(target.compute, target.memory, target.dma)).graph
    wanted = [o for n in graph.nodes for o in n.outputs if o]
    drawn = np.random.default_rng(7).normal(size=graph.type("x").shape).astype(np.float32)
    found = {"x": drawn, **FloatRun.of(graph, wanted).run({"x": drawn})}
    ranges = {name: (float(a.min()), float(a.max())) for name, a in found.items()}
    return quantize_graph(graph, place(graph, target).on_npu, ranges, Quantize(), target.numerics).graph


def timed(file: LiteModel, given: dict[str, Array], kernels: Any) -> tuple[float, list[Array]]:
    """Seconds of one run, and what it gives."""
    run = interpreter.Interpreter(
        model_content=file.model, experimental_op_resolver_type=kernels, num_threads=1
    )
    run.allocate_tensors()
    for end, detail in zip(file.inputs, run.get_input_details(), strict=True):
        run.set_tensor(detail["index"], end.given(given[end.name]))
    run.invoke()
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        run.invoke()
        seconds.append(time.process_time() - start)
    return min(seconds), [run.get_tensor(detail["index"]) for detail in run.get_output_details()]


def row(name: str, steps: int, chosen: argparse.Namespace, placed: list[str]) -> str:
    """`placed`: what Vela does with the file, line by line."""
    target = target_named("edge-4t")
    graph = coded(NETWORKS[name](steps), target)
    files = [to_tflite(graph)]
    if (name, steps) not in BEYOND:
        files.append(to_tflite(written_out(graph)))
    samples = random_samples(network_of(graph), target.numerics, 2, interpreted=0)
    runs = {k: [timed(f, samples[0][0], kind) for f in files] for k, kind in KERNELS.items()}
    pairs = [(a, b) for (_, first), *rest in runs.values() for _, other in rest
             for a, b in zip(first, other, strict=True)]
    if chosen.vela:
        placed.append(f"{name}, {steps:,} steps: {vela(chosen.vela, files[0])}.")
    found = judge(files[0], samples)
    cells = [name, f"{steps:,}"]
    cells += [*(f"{len(f.model):,}" for f in files), "-"][:2]
    cells += [*(f"{sum(f.operators.values()):,}" for f in files), "-"][:2]
    for (mine, _), *rest in runs.values():
        cells += [f"{mine:.4f}", *(f"{other / mine:.1f}x" for other, _ in rest), "-"][:2]
    cells.append(("yes" if all(np.array_equal(a, b) for a, b in pairs) else "no") if pairs else "-")
    return "| " + " | ".join([*cells, f"{found.differ:,} of {found.codes:,}, by {found.worst}"]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--vela", default="")
    parser.add_argument("--seeds", type=int, default=600)
    chosen = parser.parse_args()
    rows, placed = list[str](), list[str]()
    for name in NETWORKS:
        for steps in (200, 2000):
            rows.append(row(name, steps, chosen, placed))
            print(rows[-1], flush=True)
    half = chosen.seeds // 2
    found = [f"Steps from 1 to 12: {lite_loops.compared(0, half)}."]
    random_loops.STEPS = random_loops.LONG
    found.append(f"Steps from 10 to 24: {lite_loops.compared(half, chosen.seeds)}.")
    print("\n".join([*found, *placed]))
    import ai_edge_litert

    text = HEAD.format(version=ai_edge_litert.__version__) + "\n".join(rows)
    text += "\n\nRandom loops in both forms, reference kernels, two random inputs each:\n\n"
    text += "\n".join(f"- {one}" for one in found) + "\n"
    if placed:
        text += "\nOperators of the files with WHILE, bodies among them, in Vela (`--vela`, "
        text += "ethos-u85-256):\n\n"
        text += "\n".join(f"- {one}" for one in placed) + "\n"
    study.write(__file__, text)


if __name__ == "__main__":
    sys.exit(main())
