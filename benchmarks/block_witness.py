"""What a block type costs a network, by a second implementation: float32, numpy and onnxruntime node by node.

python benchmarks/block_witness.py MODELS OUT [TASK] [--types mx6] [--limit N] [--layers N] [--keep NAME]

Only npuflow's reader and rewrites are used here, for the float graph. Inputs and weights of every convolution
and Gemm that is not depthwise are replaced by the numbers that blocks along the input channels hold; all else
is float32. Rows: both sides, weights alone, activations alone; with `--layers N`, every layer alone by its
decibels on N samples, worst first. `--keep`: patterns of layers' outputs that stay in float32.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from blocks import stage_output
from defaults import Task, floats, recipe
from floats import decibels

# elements of a block, bits of a magnitude, elements that share a micro-exponent
TYPES = {"mx9": (16, 7, 2), "mx6": (16, 4, 2), "bfp16": (8, 7, 1), "mxint8": (32, 7, 1)}


def in_blocks(array: np.ndarray, axis: int, kind: str) -> np.ndarray:
    """The numbers that blocks hold: at most 2^bits - 1 times 2^(exponent - micro - bits + 1)."""
    size, bits, pair = TYPES[kind]
    moved = np.moveaxis(np.asarray(array, np.float32), axis, -1)
    count = moved.shape[-1]
    short = [(0, 0)] * (moved.ndim - 1) + [(0, -count % size)]
    value = np.pad(moved, short).reshape(*moved.shape[:-1], -1, size // pair, pair)
    pairs = np.abs(value).max(-1, keepdims=True)
    exponent = np.frexp(pairs.max(-2, keepdims=True))[1] - 1
    finer = (np.frexp(pairs)[1] - 1 < exponent) if pair > 1 else 0
    step = np.exp2((exponent - finer - bits + 1).astype(np.float32))
    top = np.float32(2**bits - 1)
    held = np.clip(np.rint(value / step), -top, top) * step
    return np.moveaxis(held.reshape(*moved.shape[:-1], -1)[..., :count], -1, axis)


class Network:
    """The rewritten float graph, every node a session of its own."""

    def __init__(self, model: Any) -> None:
        import onnx
        import onnxruntime

        onnxruntime.set_default_logger_severity(3)
        graph = onnx.shape_inference.infer_shapes(model).graph
        kinds = {v.name: v for v in (*graph.input, *graph.value_info, *graph.output)}
        self.consts = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
        kinds |= {
            name: onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
            )
            for name, a in self.consts.items()
        }
        self.outputs, self.nodes = [o.name for o in graph.output], list(graph.node)
        self.sessions = []
        for node in self.nodes:
            given, made = [kinds[i] for i in node.input if i], [kinds[o] for o in node.output]
            one = onnx.helper.make_graph([node], "node", given, made)
            whole = onnx.helper.make_model(one, opset_imports=model.opset_import, ir_version=model.ir_version)
            self.sessions.append(onnxruntime.InferenceSession(whole.SerializeToString()))

    def layers(self) -> list[str]:
        """Outputs of the products over channels: what block types are for."""
        return [n.output[0] for n in self.nodes if self.axes(n) is not None]

    def axes(self, node: Any) -> tuple[int, int] | None:
        """The axes of input and weight that are summed."""
        options = {a.name: a.i for a in node.attribute if a.name in ("group", "transA", "transB")}
        if node.op_type == "Conv" and options.get("group", 1) == 1:
            return 1, 1
        constant = node.op_type in ("Gemm", "MatMul") and node.input[1] in self.consts
        if not constant:
            return None
        transposed = options.get("transB", 0) == 1
        return 0 if options.get("transA", 0) else -1, 1 if transposed else 0

    def run(self, feed: Mapping[str, Any], kind: str, weights: set[str], inputs: set[str]) -> dict[str, Any]:
        """Outputs with the weights and inputs of these layers in blocks."""
        values = {**self.consts, **feed}
        for node, session in zip(self.nodes, self.sessions, strict=True):
            given, axes = {i: values[i] for i in node.input if i}, self.axes(node)
            if axes is not None and node.output[0] in inputs:
                given[node.input[0]] = in_blocks(given[node.input[0]], axes[0], kind)
            if axes is not None and node.output[0] in weights:
                given[node.input[1]] = self.weight(node, axes[1], kind)
            values.update(zip(node.output, session.run(None, given), strict=True))
        return {name: values[name] for name in self.outputs}

    def weight(self, node: Any, axis: int, kind: str) -> np.ndarray:
        key = f"{node.input[1]} in {kind}"
        if key not in self.consts:
            self.consts[key] = in_blocks(self.consts[node.input[1]], axis, kind)
        return self.consts[key]


def parsed(path: Path, out: Path) -> Any:
    """The rewritten float graph as ONNX."""
    import onnx

    from npuflow.onnx.export import export_model

    graph = stage_output(path, out, "parse", ["data.fold_normalize=false"])[0].graph
    return onnx.load_from_string(export_model(graph))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("task", nargs="?", default="photos")
    parser.add_argument("--types", nargs="*", default=["mx6"], choices=TYPES)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--keep", nargs="*", default=[])
    args = parser.parse_args()
    task = Task(args.task, args.models.resolve(), args.out.resolve())
    network = Network(parsed(recipe(task, args.out.resolve(), "xdna2"), args.out.resolve()))
    every = [n for n in network.layers() if not any(fnmatch.fnmatchcase(n, p) for p in args.keep)]

    def row(kind: str, what: str, weights: set[str], inputs: set[str], limit: int) -> dict[str, Any]:
        made = task.outputs(lambda feed: network.run(feed, kind, weights, inputs), limit)
        wanted = floats(task, args.out.resolve(), limit)
        return {"type": kind, "in blocks": what, "db": decibels(made, wanted), **task.figures(made, wanted)}

    for kind in args.types:
        sides = {"both": (1, 1), "weights": (1, 0), "activations": (0, 1)}
        for what, (w, x) in sides.items():
            chosen = set(every)
            print(
                json.dumps(row(kind, what, chosen if w else set(), chosen if x else set(), args.limit)),
                flush=True,
            )
        alone = [row(kind, name, {name}, {name}, args.layers) for name in every if args.layers]
        for one in sorted(alone, key=lambda r: r["db"]):
            print(json.dumps({k: one[k] for k in ("type", "in blocks", "db")}), flush=True)


if __name__ == "__main__":
    main()
