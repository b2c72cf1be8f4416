"""A batch normalisation with no weights before it becomes a depthwise 1x1 convolution."""

from __future__ import annotations

from math import prod

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._affine import batchnorm
from npuflow.rules._match import plain_float
from npuflow.rules._parts import Parts


@RULES.entry
class BatchnormToConv(Rule):
    """Runs after folding has had its chance, on views of one or two dimensions."""

    order = 60
    triggers = ("host:batchnormalization",)
    makes = ("conv", "reshape")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if any(node.outputs[1:]):
            return None
        if not plain_float(graph, node):
            return Refusal("batchnorm_to_conv", node.name, "not float32, or a shape that is not static")
        change = batchnorm(graph, node)
        if change is None:
            return Refusal("batchnorm_to_conv", node.name, "its statistics are not constants, or it trains")
        parts = Parts(graph, node)
        shape = graph.type(node.outputs[0]).shape
        if len(shape) < 2:
            return Refusal("batchnorm_to_conv", node.name, f"rank {len(shape)} has no channels")
        x = node.inputs[0]
        if len(shape) not in (3, 4):
            x = parts.reshape(x, (*shape[:2], prod(shape[2:])))
        spatial, channels = len(parts.shape(x)) - 2, shape[1]
        ones = (1,) * spatial
        weight = parts.const(change.scale.reshape(channels, 1, *ones), "weight")
        y = parts.op(
            "conv",
            (x, weight, parts.const(change.shift, "bias")),
            kernel_shape=ones,
            strides=ones,
            dilations=ones,
            pads=(0,) * (2 * spatial),
            group=channels,
        )
        return parts.done(parts.reshape(y, shape))
