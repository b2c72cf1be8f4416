"""Rotated residual streams and values of attention: what weights of few bits cost before and after.

    python benchmarks/rotation.py MODEL DATA [--bits 4 3] [--limit N] [--shape NAME=D,D,...]
        [--build RECIPE --cache DIR [--set KEY=VALUE ...]]

MODEL is an ONNX file, DATA an .npz file with an array of samples for every input. Weights of all layers are
rounded to the nearest, one scale per output channel, activations are float32. A line for the network as it is
and for each rotation: how far its float outputs are from the model's (largest error over the largest value),
and with rounded weights the signal over the noise of all outputs. With --build, whole builds of a recipe with
`[equalize] rotate` off and on: cycles, and the signal over the noise of the program on the simulator.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from builds import built

from npuflow import Runner, load_program
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.hw.target import Numerics
from npuflow.ir.codes import decode, encode
from npuflow.ir.graph import Graph, constant
from npuflow.quantise.config import Weights
from npuflow.quantise.types import weight_type
from npuflow.stages.parse import rewritten
from npuflow.tune.correct.rotate import rotate
from npuflow.tune.correct.rotate_values import rotate_values
from npuflow.tune.error import output_error, outputs_of

Feed = Mapping[str, Any]


def rounded(graph: Graph, bits: int) -> Graph:
    """The network with the weights that codes stand for."""
    values, consts = dict(graph.values), dict(graph.consts)
    for node in graph.nodes:
        if len(node.inputs) < 2 or node.op.role(1) != "weight" or graph.const(node.inputs[1]) is None:
            continue
        weight = graph.const(node.inputs[1])
        assert weight is not None
        axis = node.op.channel_axis(graph.site(node), 1)
        quant = weight_type(weight, axis, Weights(bits=bits), Numerics(weight_bits=(2, 3, 4, 8)), None)
        name = node.inputs[1]
        values[name], found = constant(name, decode(encode(weight, quant), quant).astype(np.float32))
        consts.update(found)
    return graph.replaced(values=MappingProxyType(values), consts=MappingProxyType(consts))


def noise(graph: Graph, feeds: Sequence[Feed], truth: Sequence[Any]) -> str:
    return f"{-10 * np.log10(output_error(truth, outputs_of(graph, feeds))):.2f} dB"


def whole(
    recipe: Path, cache: Path, sets: Sequence[str], feeds: Sequence[Feed], truth: Sequence[Any]
) -> None:
    """A line for each build of a recipe."""
    print(
        "| rotate | kept | SQNR | equal arg-max | cycles | MB | different, hazards |\n" + "| --- " * 7 + "|"
    )
    for rotation in ("off", "on"):
        with tempfile.TemporaryDirectory() as out:
            events, _ = built(recipe, Path(out), cache, [*sets, f"equalize.rotate='{rotation}'"])
            runner = Runner(load_program(next(Path(out).rglob("*.npu"))))
            made = [list(map(np.asarray, runner.run(dict(feed)).values())) for feed in feeds]
        steps = {e["stage"]: e["figures"] for e in events if e.get("event") == "step" and e.get("figures")}
        known, kept = steps["simulate"], ", ".join(k for k in steps.get("equalize", {}) if "rotate" in k)
        rows = [list(one) for one in zip(*made, strict=True)]
        equal = np.mean([a.argmax(-1) == b.argmax(-1) for a, b in zip(truth[0], rows[0], strict=True)])
        level = f"{-10 * np.log10(output_error(truth, rows)):.2f} dB"
        checks = f"{known['different']}, {known['hazards']}"
        cells = [
            rotation,
            kept or "-",
            level,
            f"{equal:.3f}",
            f"{known['cycles']:,}",
            f"{known['mb']}",
            checks,
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--bits", type=int, nargs="+", default=[4])
    parser.add_argument("--limit", type=int, default=8)
    parser.add_argument("--shape", nargs="+", default=[])
    parser.add_argument("--build", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--set", nargs="+", default=[])
    args = parser.parse_args()
    pairs = (one.split("=") for one in args.shape)
    shapes = {name: tuple(map(int, dims.split(","))) for name, dims in pairs}
    graph = rewritten(FRONTENDS["onnx"]().read(args.model.read_bytes(), Bindings(shapes))).graph
    with np.load(args.data) as held:
        arrays = {name: held[name][: args.limit] for name in graph.inputs}
    count = min(map(len, arrays.values()))
    kinds = {name: graph.type(name) for name in graph.inputs}
    feeds = [
        {name: arrays[name][i].reshape(kinds[name].shape).astype(kinds[name].dtype) for name in kinds}
        for i in range(count)
    ]
    truth = outputs_of(graph, feeds)
    if args.build:
        whole(args.build, args.cache, args.set, feeds, truth)
        return
    done, values = rotate(graph), rotate_values(graph)
    print(f"{count} samples; {done.obstacle or done.name}: {', '.join(done.charged)}")
    print(f"values: {'; '.join(one.obstacle or one.name for one in values.places)}")
    widths = " | ".join(f"W{bits}" for bits in args.bits)
    print(f"| network | nodes | largest error of float outputs | {widths} |")
    print("| --- " * (3 + len(args.bits)) + "|")
    both = rotate_values(done.graph).graph
    rows = {"as it is": graph, "stream rotated": done.graph, "values rotated": values.graph, "both": both}
    for name, one in rows.items():
        if one is graph and name != "as it is":
            continue
        made = outputs_of(one, feeds)
        off = max(
            float(np.abs(a - b).max() / np.abs(a).max())
            for x, y in zip(truth, made, strict=True)
            for a, b in zip(x, y, strict=True)
        )
        cells = [noise(rounded(one, bits), feeds, truth) for bits in args.bits]
        print(f"| {name} | {len(one.nodes)} | {off:.1e} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
