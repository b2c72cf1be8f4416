"""Two products by constant matrices become one, where that takes less than half as many multiplications."""

from __future__ import annotations

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, made_by, sole_user
from npuflow.rules import RULES, Change, Refusal
from npuflow.rules._match import VIEWS, matrix_of, plain_float
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class MergeProducts(Decomposition):
    """A matrix of waves before one of mel bands, say. A factor of low rank stays: it is there to save
    multiplications."""

    order = 17
    triggers = ("matmul", "gemm")
    makes = ("matmul", "gemm", "reshape")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if not plain_float(graph, node) or matrix_of(graph, node) is None:
            return None
        return super().rewrite(graph, node)

    def spelled(self, parts: Parts) -> tuple[str, ...] | None:
        graph, node = parts.graph, parts.node
        value = node.inputs[0]
        while (view := made_by(graph, value, *VIEWS)) is not None and sole_user(graph, value) is not None:
            value = view.inputs[0]
        first = made_by(graph, value, "matmul")
        if first is None or sole_user(graph, value) is None or first.op.clip is not None:
            return None
        left, right = matrix_of(graph, first), matrix_of(graph, node)
        if left is None or right is None or left.shape[1] != len(right):
            return None                                    # the view is of other rows
        if 2 * len(left) * right.shape[1] >= left.size + right.size:
            return None
        shape = (*graph.type(node.inputs[0]).shape[:-1], len(left))
        x = parts.reshape(first.inputs[0], shape)
        weight = left.astype(np.float64) @ right
        if kind(node) == "gemm" and node.op.transB:  # type: ignore[attr-defined]
            weight = weight.T
        return (parts.op_as(node.op, (x, parts.const(weight, "product"), *node.inputs[2:]), "merged"),)
