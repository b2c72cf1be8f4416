"""A convolution in groups, one of which fills local memory, becomes a convolution for each group."""

from __future__ import annotations

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts

_SHARE = 2                                # weights of a group may take one part in so many of local memory


@RULES.entry
class SplitGroups(Decomposition):
    """A tile of a grouped convolution is made of whole groups, since another group reads other input
    channels. The output channels of a convolution of its own can be cut anywhere, and the next weights come
    while these are used. Weights are counted with a byte each. After clips are fused, so that each part has
    the bounds of the whole."""

    order = 88
    asks = True
    triggers = ("conv",)
    makes = ("conv", "slice", "concat")

    @classmethod
    def asks_at(cls, graph: Graph, node: Node) -> bool:
        """Groups of one input channel are small on every target."""
        assert isinstance(node.op, OPS["conv"])
        return node.op.group > 1 and graph.type(node.inputs[1]).shape[1:2] != (1,)

    def spelled(self, parts: Parts) -> tuple[str, ...] | str | None:
        op, weight = parts.node.op, parts.number(1)
        assert isinstance(op, OPS["conv"])
        bias = parts.number(2)
        if op.group == 1 or weight is None or (parts.input(2) and bias is None):
            return None
        if not 0 < self.hardware.local_bytes < _SHARE * (weight.size // op.group):
            return None
        x, made = parts.input(0), []
        inputs = parts.shape(x)[1] // op.group
        for group, kernel in enumerate(np.split(weight, op.group)):
            own = parts.slice(x, 1, group * inputs, (group + 1) * inputs)
            more = () if bias is None else (parts.const(np.split(bias, op.group)[group], "bias"),)
            made.append(parts.op_as(op.with_(group=1), (own, parts.const(kernel, "weight"), *more), "group"))
        return (parts.concat(made, 1),)
