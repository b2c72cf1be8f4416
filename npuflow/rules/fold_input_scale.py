"""Moves the normalisation before a convolution or Gemm into its weights.
That is Sub, Mul, Div or Add by one number per channel.
"""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import made_by, sole_user
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._affine import affine, before


@RULES.entry
class FoldInputScale(Rule):
    """A scale is always exact; an offset only without padding, which would have to be
    the offset's image of zero."""

    order = 35
    triggers = ("conv", "gemm")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        source = made_by(graph, node.inputs[0], "add", "sub", "mul", "div", "host:batchnormalization")
        if source is None or any(source.outputs[1:]):
            return None
        change = affine(graph, source, 1)
        if change is None:
            return None
        if source.op.clip is not None:
            return Refusal("fold_input_scale", node.name, f"{source.name} clips")
        if sole_user(graph, source.outputs[0]) is not node:
            return Refusal(
                "fold_input_scale", node.name, f"the result of {source.name} is read elsewhere too"
            )
        result = before(graph, source, node, change)
        return Refusal("fold_input_scale", node.name, result) if isinstance(result, str) else result
