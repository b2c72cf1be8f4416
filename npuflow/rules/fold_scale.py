"""Batch normalisation, or a Mul, Div, Add or Sub by one number per channel, moves
into the weights before it."""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, made_by, sole_user
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._affine import WEIGHTED, affine, after, batchnorm
from npuflow.rules._match import plain_float


@RULES.entry
class FoldScale(Rule):
    """Convolution, its transpose and Gemm with constant weights take any per-channel
    affine map of their result."""

    order = 30
    triggers = ("host:batchnormalization", "add", "sub", "mul", "div")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if not plain_float(graph, node) or any(node.outputs[1:]) or node.op.clip is not None:
            return None
        if kind(node) == "host:batchnormalization" and batchnorm(graph, node) is None:
            return Refusal("fold_scale", node.name, "its statistics are not constants, or it trains")
        change = affine(graph, node, 1)
        if change is None:
            return None
        source = made_by(graph, change.source, *WEIGHTED)
        if source is None:
            return None
        if sole_user(graph, source.outputs[0]) is not node:
            return Refusal("fold_scale", node.name, f"the result of {source.name} is read elsewhere too")
        result = after(graph, source, node, change)
        return Refusal("fold_scale", node.name, result) if isinstance(result, str) else result
