"""Makes products of a step's part of a tensor in front of the loop, for all steps."""

from __future__ import annotations

from npuflow.ir.borders import border
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, made_by, maker, sole_user
from npuflow.rules import RULES
from npuflow.rules._match import matrix_of
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class HoistProduct(Decomposition):
    """And a constant that is added to the sum of such a product and another value is added to the product, in
    front of the loop, too; so is what a mask leaves of 1. Parts are rows, and a product by a constant
    matrix is made row by row."""

    order = 19
    triggers = ("matmul", "gemm", "add", "sub")
    makes = ("matmul", "gemm", "add", "sub", "loopslice")

    def spelled(self, parts: Parts) -> tuple[str, ...] | None:
        if kind(parts.node) == "sub":
            return _left(parts)
        return _moved(parts) if kind(parts.node) == "add" else _ahead(parts)


def _ahead(parts: Parts) -> tuple[str, ...] | None:
    graph, node = parts.graph, parts.node
    part = _part(graph, node.inputs[0])
    more = node.inputs[2:]
    if part is None or matrix_of(graph, node) is None or len(graph.type(node.inputs[0]).shape) < 2:
        return None
    if getattr(node.op, "transA", 0) or not all(_every_row(parts, node, v) for v in more if v):
        return None
    whole = parts.op_as(node.op, (part.inputs[0], *node.inputs[1:]), "all")
    return (parts.op_as(part.op, (whole,), "step"),)


def _left(parts: Parts) -> tuple[str, ...] | None:
    """A number less a step's part."""
    graph, (number, value) = parts.graph, parts.node.inputs
    part, held = _part(graph, value), parts.array(number)
    if part is None or held is None or held.size > 1 or len(held.shape) > len(parts.shape(value)):
        return None
    whole = parts.op_as(parts.node.op, (number, part.inputs[0]), "all")
    return (parts.op_as(part.op, (whole,), "step"),)


def _moved(parts: Parts) -> tuple[str, ...] | None:
    graph, node = parts.graph, parts.node
    for value, other in (node.inputs, node.inputs[::-1]):
        inner = made_by(graph, value, "add")
        if inner is None or inner.op.clip is not None or sole_user(graph, value) is None:
            continue
        if parts.array(other) is None or not _every_row(parts, node, other):
            continue
        for row, rest in (inner.inputs, inner.inputs[::-1]):
            part = _part(graph, row)
            product = part and made_by(graph, part.inputs[0], "matmul", "gemm")
            same = graph.type(row).shape == parts.shape(node.outputs[0])
            if part is None or not product or not same or sole_user(graph, row) is None:
                continue
            whole = parts.add(part.inputs[0], other, "all")
            step = parts.op_as(part.op, (whole,), "step")
            return (parts.op_as(node.op, (step, rest), "sum"),)
    return None


def _part(graph: Graph, value: str) -> Node | None:
    """The border that gives a step this part of a tensor."""
    node = maker(graph, value)
    return node if node is not None and border(node)[0] == "slice" else None


def _every_row(parts: Parts, node: Node, value: str) -> bool:
    """Whether a constant is the same for all rows."""
    shape, rank = parts.shape(value), len(parts.shape(node.outputs[0]))
    return parts.array(value) is not None and (len(shape) < rank or shape[0] == 1)
