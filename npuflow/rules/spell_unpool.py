"""Spells MaxUnpool by the indices of a MaxPool with windows side by side.
Every value goes to the place of the maximum in its window.
"""

from __future__ import annotations

from math import prod

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Imported, Node, OnnxCall
from npuflow.ir.queries import kind, maker, users
from npuflow.rules import RULES, Change, Refusal
from npuflow.rules._match import attribute
from npuflow.rules._parts import Decomposition, Parts

_TILED = {"auto_pad": "NOTSET", "ceil_mode": 0, "storage_order": 0}  # of windows side by side


@RULES.entry
class SpellUnpool(Decomposition):
    """The place of a maximum is found in its window again, as a position below the window's size: positions
    in the whole tensor, which MaxPool gives, would leave 16 bits. Behind the rule for constant indices. A
    MaxPool whose indices nobody else reads is a plain one then."""

    order = 5
    triggers = ("host:maxunpool", "host:maxpool")
    makes = ("argextreme", "reshape", "transpose", "sub", "max", "clip", "mul", "maxpool")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        return _plain(graph, node) if kind(node) == "host:maxpool" else super().rewrite(graph, node)

    def spelled(self, parts: Parts) -> tuple[str, ...] | str | None:
        pool = maker(parts.graph, parts.input(1))
        if pool is None or kind(pool) != "host:maxpool":
            return None if parts.number(1) is not None else "its indices come from no MaxPool of the network"
        x, y = pool.inputs[0], parts.shape(parts.node.outputs[0])
        kernel, shape = _kernel(pool), parts.shape(x)
        if kernel is None or len(shape) != 4 or any(d % k for d, k in zip(shape[2:], kernel, strict=True)):
            return "the windows of its MaxPool are not side by side"
        if y != shape:
            return f"it makes {list(y)} of indices into {list(shape)}"
        (count, high, low), (rows, columns), size = _split(shape, kernel), kernel, prod(kernel)
        windows = parts.transpose(parts.reshape(x, (count * high, rows, low, columns)), (0, 2, 1, 3))
        at = parts.op("argextreme", (parts.reshape(windows, (count * high * low, size)),), axis=1, largest=1)
        places = parts.const(np.arange(size, dtype=np.float32)[None], "places")
        away = parts.op("max", (parts.sub(places, at), parts.sub(at, places)), "away")
        here = parts.clip(parts.sub(1.0, away), 0.0, 1.0, "here")
        spread = parts.mul(parts.reshape(parts.input(0), (count * high * low, 1)), here, "spread")
        back = parts.transpose(parts.reshape(spread, (count * high, low, rows, columns)), (0, 2, 1, 3))
        return (parts.reshape(back, y),)


def _kernel(pool: Node) -> tuple[int, int] | None:
    """The window, where its steps are as long and nothing is padded."""
    kernel = tuple(attribute(pool, "kernel_shape"))
    plain = all(attribute(pool, name, default) == default for name, default in _TILED.items())
    pads, dilations = attribute(pool, "pads", ()) or (), attribute(pool, "dilations", ()) or ()
    alone = not any(pads) and all(d == 1 for d in dilations)
    if not plain or not alone or len(kernel) != 2 or tuple(attribute(pool, "strides", ())) != kernel:
        return None
    return kernel[0], kernel[1]


def _split(shape: tuple[int, ...], kernel: tuple[int, int]) -> tuple[int, int, int]:
    """Images of one channel, and rows and columns of windows in each."""
    return shape[0] * shape[1], shape[2] // kernel[0], shape[3] // kernel[1]


def _plain(graph: Graph, node: Node) -> Change | None:
    """The pool without its indices, where nobody reads them."""
    x = graph.type(node.inputs[0])
    if len(node.outputs) < 2 or any(users(graph, o) or o in graph.outputs for o in node.outputs[1:] if o):
        return None
    if x.dtype != "float32" or not node.outputs[0]:
        return None
    held = dict(node.op.attributes)  # type: ignore[attr-defined]
    made = OPS["maxpool"].from_onnx(OnnxCall("MaxPool", held, types=(x,), consts=(None,)))
    if not isinstance(made, Imported):
        return None
    return Change((node,), (Node(made.op, node.inputs[:1], node.outputs[:1], node.origin),))
