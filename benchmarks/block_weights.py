"""What weights in a block type cost a network when nothing else is rounded: onnxruntime with other constants.

python benchmarks/block_weights.py MODELS OUT [TASK] [--types mx6 mx9] [--limit N]

Rows: every number to its nearest; and of two exponents for a block and both micro-exponents for each pair
those with the least squared error, which a block type leaves to the writer. Neither needs data.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from block_witness import TYPES, Network, in_blocks, parsed
from defaults import Task, floats, recipe
from floats import decibels


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


def main() -> None:
    import onnx
    import onnxruntime

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("task", nargs="?", default="photos")
    parser.add_argument("--types", nargs="*", default=["mx6", "mx9"], choices=TYPES)
    parser.add_argument("--limit", type=int, default=0)
    args = parser.parse_args()
    out = args.out.resolve()
    task = Task(args.task, args.models.resolve(), out)
    model, options = parsed(recipe(task, out, "xdna2"), out), onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    consts = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    axes: Any = {n.input[1]: Network.axes(SimpleNamespace(consts=consts), n) for n in model.graph.node[:]
                 if len(n.input) > 1}  # type: ignore[arg-type]
    wanted = floats(task, out, args.limit)
    for kind in args.types:
        for how, rounded in (("nearest", in_blocks), ("least squares", least_squares)):
            changed = onnx.ModelProto()
            changed.CopyFrom(model)
            for t in changed.graph.initializer:
                if axes.get(t.name) is not None:
                    held = np.ascontiguousarray(rounded(consts[t.name], axes[t.name][1], kind), np.float32)
                    t.CopyFrom(onnx.numpy_helper.from_array(held, t.name))
            session = onnxruntime.InferenceSession(changed.SerializeToString(), options)
            names = [o.name for o in session.get_outputs()]

            def run(feed: Any, s: Any = session, names: Any = tuple(names)) -> Any:
                return dict(zip(names, s.run(None, dict(feed)), strict=True))

            made = task.outputs(run, args.limit)
            found = {"type": kind, "rounding": how, "db": decibels(made, wanted)}
            print(json.dumps({**found, **task.figures(made, wanted)}), flush=True)


if __name__ == "__main__":
    main()
