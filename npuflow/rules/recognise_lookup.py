"""A product of one-hot rows with a constant matrix is a look-up of its rows (an embedding)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import kind, maker
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import attribute
from npuflow.rules._parts import Parts

_FLOAT = 1                                # onnx's number of the type


@RULES.entry
class RecogniseLookup(Rule):
    """The look-up copies rows where the product multiplies all of them. An index outside of the matrix is an
    error when the network runs; its one-hot row was all zeros."""

    order: ClassVar[int] = 3
    triggers = ("matmul", "gemm")
    makes = ("host", "add", "mul")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        table, plain = graph.const(node.inputs[1]), True
        if kind(node) == "gemm":
            op = node.op
            plain = op.transA == 0 and op.alpha == 1 and op.beta == 1  # type: ignore[attr-defined]
            table = table.T if table is not None and op.transB else table  # type: ignore[attr-defined]
        if table is None or table.ndim != 2 or not plain or node.op.clip is not None:
            return None
        indices = _one_hot(graph, node.inputs[0], len(table))
        if indices is None:
            return None
        parts = Parts(graph, node)
        rows = OPS["host"](
            op_type="Gather",
            version=EXPORT_OPSET,
            attributes=(("axis", 0),),
            types=(graph.type(node.outputs[0]),),
            reason="the indices are not a constant",
        )
        y = parts.op_as(rows, (parts.const(np.ascontiguousarray(table), "rows"), indices), "looked_up")
        if kind(node) == "gemm" and len(node.inputs) > 2 and node.inputs[2]:
            y = parts.add(y, node.inputs[2])
        return parts.done(y)


def _one_hot(graph: Graph, value_id: str, depth: int) -> str | None:
    """The indices behind rows of one 1 and zeros: OneHot, or a Cast of indices compared with 0, 1..."""
    node = maker(graph, value_id)
    if node is None:
        return None
    if kind(node) == "host:onehot":
        size, values = graph.const(node.inputs[1]), graph.const(node.inputs[2])
        last = attribute(node, "axis", -1) in (-1, len(graph.type(value_id).shape) - 1)
        known = size is not None and int(size.reshape(-1)[0]) == depth
        exact = values is not None and values.reshape(-1).tolist() == [0.0, 1.0]
        return node.inputs[0] if last and known and exact else None
    if kind(node) != "host:cast" or attribute(node, "to") != _FLOAT:
        return None
    equal = maker(graph, node.inputs[0])
    if equal is None or kind(equal) != "host:equal":
        return None
    for column, row in (equal.inputs, equal.inputs[::-1]):
        held, rest = graph.const(row), graph.type(column)
        if held is None or held.dtype.kind not in "iu" or rest.dtype not in ("int64", "int32"):
            continue
        shaped = held.shape[-1:] == (depth,) and held.size == depth and rest.shape[-1:] == (1,)
        if shaped and np.array_equal(held.reshape(-1), np.arange(depth)):
            return _without_last(graph, column)
    return None


def _without_last(graph: Graph, column: str) -> str | None:
    """The value before an Unsqueeze or Reshape put an axis of one behind it."""
    node = maker(graph, column)
    wanted = graph.type(column).shape[:-1]
    if node is None or kind(node) not in ("host:unsqueeze", "host:reshape", "unsqueeze", "reshape"):
        return None
    return node.inputs[0] if graph.type(node.inputs[0]).shape == wanted else None
