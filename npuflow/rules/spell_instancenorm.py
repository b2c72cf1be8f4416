"""InstanceNormalization and GroupNormalization in simpler operators, over a view of
groups and what is in them."""

from __future__ import annotations

from math import prod

from npuflow.ir.queries import kind
from npuflow.rules import RULES
from npuflow.rules._norms import NORM, normalized, per_channel, scaled
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellInstancenorm(Decomposition):
    """Instances are groups of one channel. Scales belong to channels, or to groups before opset 21."""

    triggers = ("host:instancenormalization", "host:groupnormalization")
    makes = NORM

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x, scale, bias = parts.input(0), parts.input(1), parts.input(2)
        n, channels, *rest = shape = parts.shape(x)
        groups = (
            channels if kind(parts.node) == "host:instancenormalization" else parts.integer("num_groups", 1)
        )
        if getattr(parts.node.op, "family", ""):
            return "a form of onnxruntime's own with channels last"
        y = parts.reshape(x, (n, groups, channels // groups * prod(rest)))
        y = normalized(parts, y, (2,), parts.real("epsilon", 1e-5)).y
        if parts.type(scale).size == channels:
            y = parts.reshape(y, (n, channels, prod(rest)))
        y = scaled(parts, y, *(per_channel(parts, v, 3) for v in (scale, bias)))
        return (parts.reshape(y, shape),)
