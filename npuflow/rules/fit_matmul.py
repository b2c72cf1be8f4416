"""A product with a vector becomes one with a matrix of one row or column."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.rules import RULES, Change, Refusal
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class FitMatmul(Decomposition):
    triggers = ("matmul",)
    makes = ("reshape",)

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        vector = any(len(graph.type(i).shape) < 2 for i in node.inputs)
        return super().rewrite(graph, node) if vector else None

    def spelled(self, parts: Parts) -> tuple[str, ...]:
        a, b = parts.node.inputs
        left = parts.reshape(a, (1, *parts.shape(a))) if len(parts.shape(a)) < 2 else a
        right = parts.reshape(b, (*parts.shape(b), 1)) if len(parts.shape(b)) < 2 else b
        y = parts.op_as(parts.node.op, (left, right), "product")
        return (parts.reshape(y, parts.shape(parts.node.outputs[0])),)
