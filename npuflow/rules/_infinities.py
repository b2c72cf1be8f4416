"""Where a value is infinite or not a number, by the constants that it is made of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, maker
from npuflow.ir.types import Array
from npuflow.rules._match import attribute

# Bounded functions, and operators that no network feeds infinite numbers but as a padding or a limit.
_FINITE = frozenset(
    (
        *("sigmoid", "tanh", "hardsigmoid", "erf", "sign", "argmax", "argmin", "shape", "clip"),
        *("conv", "convtranspose", "gemm", "matmul", "maxpool", "averagepool"),
    )
)


def infinities(graph: Graph, value_id: str) -> Array | None:
    """The value with 0 in place of all that is finite, of a shape that broadcasts to its own.

    Inputs of the graph count as finite. None: which elements are infinite depends on data.
    """
    return _found(graph, value_id, {})


def _found(graph: Graph, value_id: str, known: dict[str, Array | None]) -> Array | None:
    """Without recursion: a chain may be as long as a recurrent network that is written out."""
    waiting = [value_id]
    while waiting:
        held, node = graph.const(waiting[-1]), maker(graph, waiting[-1])
        if waiting[-1] in known:
            waiting.pop()
        elif held is not None:
            known[waiting.pop()] = _special(held)
        elif node is None or _name(node) in _FINITE:
            known[waiting.pop()] = np.zeros((), np.float32)
        elif lacking := [i for i in node.inputs if i and i not in known]:
            waiting += lacking
        else:
            known[waiting.pop()] = _made(graph, node, [known[i] for i in node.inputs if i])
    return known[value_id]


def _name(node: Node) -> str:
    return kind(node).removeprefix("host:")


def _special(held: Array) -> Array:
    """Floats with 0 for finite elements; 0 for all other types."""
    if held.dtype.kind != "f" or np.isfinite(held).all():
        return np.zeros((), np.float32)
    return np.where(np.isfinite(held), np.float32(0), held).astype(np.float32)


def _made(graph: Graph, node: Node, values: list[Array | None]) -> Array | None:
    made = _MADE.get(_name(node))
    if all(v is not None and not v.any() for v in values):
        return np.zeros((), np.float32)
    if made is None or any(v is None for v in values):
        return None
    with np.errstate(invalid="ignore"):
        return made(graph, node, [v for v in values if v is not None])


def _where(graph: Graph, node: Node, values: list[Array]) -> Array | None:
    chosen = graph.const(node.inputs[0])
    return None if chosen is None else np.where(chosen, values[1], values[2])


def _largest(graph: Graph, node: Node, values: list[Array]) -> Array | None:
    if node.op.hosted:
        return None
    shape = graph.type(node.inputs[0]).shape
    return np.asarray(node.op.reference(np.broadcast_to(values[0], shape))[0])


def _softmax(graph: Graph, node: Node, values: list[Array]) -> Array | None:
    """A row of minus infinity alone is 0 / 0."""
    shape = graph.type(node.inputs[0]).shape
    axis = int(attribute(node, "axis", getattr(node.op, "axis", -1)))
    rows = np.broadcast_to(values[0], shape)
    if np.isnan(rows).any() or np.isposinf(rows).any():
        return None
    empty = np.isneginf(rows).all(axis, keepdims=True)
    return np.where(empty, np.float32(np.nan), np.float32(0))


_Made = Callable[[Graph, Node, list[Array]], Array | None]
_MADE: dict[str, _Made] = {
    "add": lambda _graph, _node, values: values[0] + values[1],
    "sub": lambda _graph, _node, values: values[0] - values[1],
    "cast": lambda _graph, _node, values: values[0],
    "castlike": lambda _graph, _node, values: values[0],
    "identity": lambda _graph, _node, values: values[0],
    "where": _where,
    "reducemax": _largest,
    "softmax": _softmax,
}
