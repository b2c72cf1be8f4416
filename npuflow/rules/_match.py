"""What rules ask of a graph: a node's kind, a value's producer, its only reader, constants."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind
from npuflow.ir.types import Array

VIEWS = ("reshape", "squeeze", "unsqueeze", "flatten")    # the same elements in another shape


def bounds(node: Node) -> tuple[float, float]:
    """The interval that a Relu or Clip keeps."""
    if kind(node) == "relu":
        return 0.0, inf
    return node.op.min, node.op.max  # type: ignore[attr-defined]


def scalar(graph: Graph, value_id: str) -> float | None:
    """The number a one-element constant holds."""
    array = graph.const(value_id)
    return (
        float(array.reshape(-1)[0])
        if array is not None and array.size == 1 and array.dtype.kind in "fiu"
        else None
    )


def close(value: float | None, wanted: float) -> bool:
    """Whether a constant is meant to be this number: float32 roundings of irrational
    ones differ in the last digits."""
    return value is not None and bool(np.isclose(value, wanted, rtol=1e-5, atol=0.0))


def other(node: Node, value_id: str) -> str | None:
    """The other operand of a node with two operands."""
    if len(node.inputs) != 2 or value_id not in node.inputs:
        return None
    return node.inputs[1] if node.inputs[0] == value_id else node.inputs[0]


def with_scalar(graph: Graph, node: Node) -> tuple[str, float] | None:
    """(activation, number) of a commutative node one of whose two operands is a number."""
    if len(node.inputs) != 2:
        return None
    for x, c in (node.inputs, node.inputs[::-1]):
        number = scalar(graph, c) if c else None
        if (
            number is not None
            and x
            and graph.const(x) is None
            and graph.type(x).shape == graph.type(node.outputs[0]).shape
        ):
            return x, number
    return None


def attribute(node: Node, name: str, default: Any = None) -> Any:
    """An attribute of a node kept for the host."""
    return dict(getattr(node.op, "attributes", ())).get(name, default)


def origins(*nodes: Node) -> tuple[str, ...]:
    """Source names of all the nodes, each once."""
    return tuple(dict.fromkeys(o for n in nodes for o in n.origin))


def fresh(graph: Graph, base: str) -> str:
    """A value id that the graph does not have yet."""
    name, k = base, 1
    while name in graph.values:
        name, k = f"{base}.{k}", k + 1
    return name


def plain_float(graph: Graph, node: Node) -> bool:
    """Whether the node's first output is a static float32 tensor."""
    kind_ = graph.type(next(o for o in node.outputs if o))
    return kind_.dtype == "float32" and kind_.is_static


def per_channel(array: Array, shape: tuple[int, ...], axis: int = 1) -> Array | None:
    """A constant operand as one value per channel of a tensor of that shape; None when
    it varies along another axis."""
    rank = len(shape)
    if array.ndim > rank:
        return None
    full = array.reshape((1,) * (rank - array.ndim) + array.shape)
    if any(size != 1 for i, size in enumerate(full.shape) if i != axis):
        return None
    return np.broadcast_to(full.reshape(-1), (shape[axis],)) if full.shape[axis] in (1, shape[axis]) else None


def matrix_of(graph: Graph, node: Node) -> Array | None:
    """[inputs, outputs] of a product of rows by a constant matrix; None of any other."""
    held, op = graph.const(node.inputs[1]), node.op
    if held is None or held.ndim != 2:
        return None
    if kind(node) == "matmul":
        return held
    plain = not op.transA and op.alpha == op.beta == 1.0  # type: ignore[attr-defined]
    return (held.T if op.transB else held) if plain else None  # type: ignore[attr-defined]
