"""Rotated residual streams: what weights of few bits cost before and after.

    python benchmarks/rotation.py MODEL DATA [--bits 4 3] [--limit N] [--shape NAME=D,D,...]

MODEL is an ONNX file, DATA an .npz file with an array of samples for every input. Weights of all layers are
rounded to the nearest, one scale per output channel, activations are float32. A line for the network as it is
and one for the rotated network: how far its float outputs are from the model's (largest error over the
largest value), and with rounded weights the signal over the noise of all outputs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from npuflow.engine.correct.error import output_error, outputs_of
from npuflow.engine.correct.rotate import rotate
from npuflow.engine.quantize.config import Weights
from npuflow.engine.quantize.types import weight_type
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.hw.target import Numerics
from npuflow.ir.codes import decode, encode
from npuflow.ir.graph import Graph, constant
from npuflow.stages.parse import rewritten

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


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--bits", type=int, nargs="+", default=[4])
    parser.add_argument("--limit", type=int, default=8)
    parser.add_argument("--shape", nargs="+", default=[])
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
    done = rotate(graph)
    truth = outputs_of(graph, feeds)
    print(f"{count} samples; {done.obstacle or done.name}: {', '.join(done.charged)}")
    widths = " | ".join(f"W{bits}" for bits in args.bits)
    print(f"| network | nodes | largest error of float outputs | {widths} |")
    print("| --- " * (3 + len(args.bits)) + "|")
    for name, one in [("as it is", graph), *([] if done.obstacle else [("rotated", done.graph)])]:
        made = outputs_of(one, feeds)
        off = max(
            float(np.abs(a - b).max() / np.abs(a).max())
            for x, y in zip(truth, made, strict=True) for a, b in zip(x, y, strict=True)
        )
        cells = [noise(rounded(one, bits), feeds, truth) for bits in args.bits]
        print(f"| {name} | {len(one.nodes)} | {off:.1e} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
