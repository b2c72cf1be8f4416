"""A batch normalisation with no weights before it becomes a depthwise 1x1 convolution."""

from __future__ import annotations

import numpy as np

from npuflow.ir.affine import batchnorm
from npuflow.ir.graph import Graph, Node, constant
from npuflow.ir.match import fresh, plain_float
from npuflow.ir.op import OPS
from npuflow.ir.rule import RULES, Change, Refusal, Rule


@RULES.entry
class BatchnormToConv(Rule):
    """Runs after folding has had its chance, on images of one or two dimensions."""

    order = 60
    triggers = ("host:batchnormalization",)
    makes = ("conv",)

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if any(node.outputs[1:]):
            return None
        if not plain_float(graph, node):
            return Refusal("batchnorm_to_conv", node.name, "not float32, or a shape that is not static")
        change = batchnorm(graph, node)
        if change is None:
            return Refusal("batchnorm_to_conv", node.name, "its statistics are not constants, or it trains")
        shape = graph.type(node.outputs[0]).shape
        if len(shape) not in (3, 4):
            return Refusal("batchnorm_to_conv", node.name, f"rank {len(shape)} is not that of a 1-D or 2-D convolution")
        spatial, channels = len(shape) - 2, shape[1]
        ones = (1,) * spatial
        weight, consts = constant(
            fresh(graph, f"{node.outputs[0]}:weight"), change.scale.astype(np.float32).reshape(channels, 1, *ones)
        )
        bias, more = constant(fresh(graph, f"{node.outputs[0]}:bias"), change.shift.astype(np.float32))
        op = OPS["conv"](ones, ones, ones, (0,) * (2 * spatial), channels)
        made = Node(op, (node.inputs[0], weight.id, bias.id), node.outputs, node.origin)
        return Change((node,), (made,), (weight, bias), (*consts.items(), *more.items()))
