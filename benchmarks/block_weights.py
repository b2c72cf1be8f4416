"""What weights in a block type cost a network when nothing else is rounded: onnxruntime with other constants.

python benchmarks/block_weights.py MODELS OUT [TASK] [--types mx6 mx9] [--limit N] [--ways WAY ...] [--inputs]

Ways: every number to its nearest; of two exponents for a block and both micro-exponents for each pair those
with the least squared error, which a block type leaves to the writer; the same with input channels in the
order of their weights' root mean squares, so that channels of a block are alike; with each channel's weights
divided by the root of that, or by that, and its inputs multiplied, as equalisation does; and with both. None
needs data. `--inputs`: the inputs of these layers are in blocks too, node by node (slow).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from block_witness import TYPES, Network, in_blocks, parsed
from defaults import Task, floats, recipe
from floats import decibels

Rounded = Callable[[np.ndarray, int, str], np.ndarray]


def least_squares(array: np.ndarray, axis: int, kind: str) -> np.ndarray:
    """The numbers that blocks of the best exponents hold."""
    size, bits, pair = TYPES[kind]
    moved = np.moveaxis(np.asarray(array, np.float64), axis, -1)
    count, top = moved.shape[-1], 2**bits - 1
    value = np.pad(moved, [(0, 0)] * (moved.ndim - 1) + [(0, -count % size)])
    value = value.reshape(*moved.shape[:-1], -1, size // pair, pair)
    order = np.frexp(np.abs(value).max((-1, -2), keepdims=True))[1] - 1
    best, least = value, np.full(order.shape, np.inf)
    for lower in (0, 1):
        held, error = value, np.full((*value.shape[:-1], 1), np.inf)
        for micro in (0, 1) if pair > 1 else (0,):
            step = np.exp2(order - lower - micro - bits + 1.0)
            found = np.clip(np.rint(value / step), -top, top) * step
            off = ((found - value) ** 2).sum(-1, keepdims=True)
            held, error = np.where(off < error, found, held), np.minimum(off, error)
        total = error.sum((-1, -2), keepdims=True)
        best, least = np.where(total < least, held, best), np.minimum(total, least)
    return np.moveaxis(best.reshape(*moved.shape[:-1], -1)[..., :count], -1, axis).astype(np.float32)


@dataclass(frozen=True)
class Way:
    """How weights are put into blocks: the rounding, the power of a channel's root mean square that its
    weights are divided by, and whether channels are in the order of what is left of it."""

    rounding: Rounded = least_squares
    power: float = 0.0
    ordered: bool = False

    def arrangement(self, weight: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
        """What each channel is divided by, and their order."""
        rest = tuple(d for d in range(weight.ndim) if d != axis % weight.ndim)
        size = np.sqrt(np.square(weight.astype(np.float64)).mean(rest)) + 1e-12
        scale = size**self.power
        order = np.argsort(size / scale) if self.ordered else np.arange(len(size))
        return scale, order

    def blocks(
        self, array: np.ndarray, axis: int, scale: np.ndarray, order: np.ndarray, kind: str
    ) -> np.ndarray:
        """The numbers held of `array` divided by `scale` along an axis in `order`, back in their places."""
        moved = np.moveaxis(np.asarray(array, np.float64), axis, -1)
        found = np.empty_like(moved)
        found[..., order] = self.rounding((moved / scale)[..., order], -1, kind)
        return np.ascontiguousarray(np.moveaxis(found * scale, -1, axis), np.float32)


WAYS = {
    "nearest": Way(in_blocks),
    "least squares": Way(),
    "ordered": Way(ordered=True),
    "root divided": Way(power=0.5),
    "divided": Way(power=1.0),
    "root divided, ordered": Way(power=0.5, ordered=True),
}


class Changed:
    """A network with weights in blocks, as one session, or node by node with inputs in blocks."""

    def __init__(self, model: Any, way: Way, kind: str, inputs: bool) -> None:
        import onnx

        consts = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
        known: Any = SimpleNamespace(consts=consts)
        axes = {n.output[0]: Network.axes(known, n) for n in model.graph.node}
        changed, self.way, self.kind = onnx.ModelProto(), way, kind
        changed.CopyFrom(model)
        self.layers: dict[str, Any] = {}
        held = {}
        for node in model.graph.node:
            found = axes[node.output[0]]
            if found is not None:
                weight = consts[node.input[1]]
                scale, order = way.arrangement(weight, found[1])
                self.layers[node.output[0]] = found[0], 1.0 / scale, order
                held[node.input[1]] = way.blocks(weight, found[1], scale, order, kind)
        for t in changed.graph.initializer:
            if t.name in held:
                t.CopyFrom(onnx.numpy_helper.from_array(held[t.name], t.name))
        self.run = self._nodes(changed) if inputs else self._session(changed)

    @staticmethod
    def _session(model: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        names = [o.name for o in session.get_outputs()]
        return lambda feed: dict(zip(names, session.run(None, dict(feed)), strict=True))

    def _nodes(self, model: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        net = Network(model)

        def run(feed: Mapping[str, Any]) -> dict[str, Any]:
            values = {**net.consts, **feed}
            for node, session in zip(net.nodes, net.sessions, strict=True):
                given = {i: values[i] for i in node.input if i}
                if node.output[0] in self.layers:
                    axis, scale, order = self.layers[node.output[0]]
                    plain = Way(in_blocks)
                    given[node.input[0]] = plain.blocks(given[node.input[0]], axis, scale, order, self.kind)
                values.update(zip(node.output, session.run(None, given), strict=True))
            return {name: values[name] for name in net.outputs}

        return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("task", nargs="?", default="photos")
    parser.add_argument("--types", nargs="*", default=["mx6", "mx9"], choices=TYPES)
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=WAYS)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--inputs", action="store_true")
    args = parser.parse_args()
    out = args.out.resolve()
    task = Task(args.task, args.models.resolve(), out)
    model = parsed(recipe(task, out, "xdna2"), out)
    wanted = floats(task, out, args.limit)
    for kind in args.types:
        for way in args.ways:
            made = task.outputs(Changed(model, WAYS[way], kind, args.inputs).run, args.limit)
            found = {"type": kind, "inputs": args.inputs, "way": way, "db": decibels(made, wanted)}
            print(json.dumps({**found, **task.figures(made, wanted)}), flush=True)


if __name__ == "__main__":
    main()
