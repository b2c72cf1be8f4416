"""EPContext models beside their programs: the same outputs, run by npuflow.ort.

    python benchmarks/epcontext.py [--samples N] MODEL ...

Models are ONNX files; ranges are those of one random sample, the target is edge-4t. For each: its nodes, its
nodes of the host, the size of the model, and how many output elements differ in any bit from the program's
on random samples, by the graph on whole tensors and, on one sample, by commands.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from shapes import of_file, planned, target_named

import npuflow.ort as ort
from npuflow.base.errors import NpuflowError
from npuflow.ir.types import Array
from npuflow.place.place import place
from npuflow.program.codegen.generate import generate
from npuflow.program.graph_section import encode_graph
from npuflow.runner.context_model import context_model
from npuflow.runner.ports import Port
from npuflow.runner.runner import Runner
from npuflow.testing.quantised import quantize_graph
from npuflow.testing.target import scheme
from tests.networks.subjects import subject


def drawn(port: Port, rng: np.random.Generator) -> Array:
    real = port.dtype.startswith("float")
    return (rng.normal(size=port.shape) if real else rng.integers(0, 2, port.shape)).astype(port.dtype)


def unequal(found: list[Array], wanted: dict[str, Array], names: list[str]) -> int:
    """Elements of which any bit differs."""
    count = 0
    for array, name in zip(found, names, strict=True):
        one, other = array, wanted[name]
        assert (one.shape, one.dtype) == (other.shape, other.dtype), name
        count += int((one.view(f"u{one.itemsize}") != other.view(f"u{one.itemsize}")).sum())
    return count


def measure(path: str, samples: int) -> str:
    target = target_named("edge-4t")
    one = subject(path, of_file(path)[0])
    placed = place(one.graph, target)
    done = quantize_graph(one.graph, placed, one.ranges, scheme(target), target.numerics).graph
    program = replace(generate(done, planned(done, target), target), graph_bytes=encode_graph(done))
    made = context_model(program)
    rng, runner, differ, elements = np.random.default_rng(0), Runner(program), 0, 0
    commands = [("NpuflowExecutionProvider", {"exact": "simulator"})]
    ways = [ort.InferenceSession(made.model), ort.InferenceSession(made.model, providers=commands)]
    names = [port.name for port in runner.outputs]
    for k in range(samples):
        feed = {port.name: drawn(port, rng) for port in runner.inputs}
        wanted = runner.run(feed)
        for session in ways if k == 0 else ways[:1]:
            differ += unequal(session.run(names, feed), wanted, names)
            elements += sum(wanted[name].size for name in names)
    size = f"{len(made.model) / 1e6:.2f}"
    return f"| {Path(path).stem} | {made.parts} | {made.hosted} | {size} | {elements} | {differ} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--samples", type=int, default=3)
    chosen = parser.parse_args()
    print("| network | EPContext nodes | nodes of the host | MB | output elements | differ |")
    print("| --- | --- | --- | --- | --- | --- |")
    for path in chosen.models:
        try:
            print(measure(path, chosen.samples), flush=True)
        except NpuflowError as error:
            print(f"| {Path(path).stem} | {error.code}: {error.message[:120]} |", flush=True)


if __name__ == "__main__":
    main()
