"""Moves a Reshape of matrix rows down to where another one undoes it.
It passes element-wise operators and reductions of rows.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, cast

import numpy as np

from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.queries import kind, made_by
from npuflow.ir.types import Array, TensorType, Value
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import fresh, plain_float

_BINARY = ("add", "sub", "mul", "div", "min", "max")
_REDUCTIONS = ("reducemean", "reducesum", "reducemax")


@RULES.entry
class SinkReshape(Rule):
    """What lies between two products with constant weights, as in a transformer, is then computed on the
    matrices themselves. Another operand gets a Reshape of its own, which costs nothing."""

    order = 45
    makes = ("reshape",)

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if not plain_float(graph, node):
            return None
        matrices = [_matrix(graph, i) for i in node.inputs]
        value = next((i for i, m in zip(node.inputs, matrices, strict=True) if m is not None), None)
        if value is None or len(node.outputs) != 1:
            return None
        lead = graph.type(value).shape[:-1]
        op, out = _on_rows(node, len(lead) + 1), graph.type(node.outputs[0]).shape
        if op is None or out[:-1] != lead:
            return None
        inputs: list[str] = []
        values: list[Value] = []
        moved: list[Node] = []
        consts: dict[str, Array] = {}
        for i, matrix in zip(node.inputs, matrices, strict=True):
            array, shape = graph.const(i), graph.type(i).shape
            if matrix is not None and shape[:-1] == lead:
                inputs.append(matrix)
                continue
            rows = _by_rows(array, lead) if array is not None else None
            if rows is not None:
                made, content = constant(fresh(graph, f"{i}:rows"), rows)
                consts |= content
            elif array is None and shape[:-1] == lead:
                made = Value(fresh(graph, f"{i}:rows"), TensorType((prod(lead), shape[-1])))
                moved.append(Node(OPS["reshape"](made.type.shape), (i,), (made.id,), node.origin))
            else:
                return None
            values.append(made)
            inputs.append(made.id)
        inner = Value(fresh(graph, f"{node.outputs[0]}:rows"), TensorType((prod(lead), out[-1])))
        below = Node(op, tuple(inputs), (inner.id,), node.origin)
        again = Node(OPS["reshape"](out), (inner.id,), node.outputs, node.origin)
        return Change((node,), (*moved, below, again), (*values, inner), tuple(consts.items()))


def _matrix(graph: Graph, value: str) -> str | None:
    """The matrix whose rows a Reshape has given more dimensions."""
    node = made_by(graph, value, "reshape") if value else None
    if node is None or node.op.clip is not None:
        return None
    before, after = graph.type(node.inputs[0]).shape, graph.type(value).shape
    return node.inputs[0] if len(before) == 2 < len(after) and before[-1] == after[-1] else None


def _on_rows(node: Node, rank: int) -> Op | None:
    """The operator on matrices: element by element, or a reduction of the last dimension."""
    if node.op.unary or kind(node) in _BINARY:
        return node.op
    op: Any = node.op
    if kind(node) in _REDUCTIONS and op.keepdims and op.axes == (rank - 1,):
        return cast(Op, replace(op, axes=(1,)))
    return None


def _by_rows(array: Array, lead: tuple[int, ...]) -> Array | None:
    """A constant that is the same for all rows, or has an own part for each, as a matrix."""
    rank = len(lead) + 1
    if array.ndim > rank:
        return None
    full = array.reshape((1,) * (rank - array.ndim) + array.shape)
    if all(d == 1 for d in full.shape[:-1]):
        return full.reshape(1, -1)
    return np.broadcast_to(full, (*lead, full.shape[-1])).reshape(prod(lead), -1)
