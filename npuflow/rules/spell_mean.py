"""Mean of several tensors: their sum over their number."""

from __future__ import annotations

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellMean(Decomposition):
    triggers = ("host:mean",)
    makes = ("add", "mul", "reshape")

    def spelled(self, parts: Parts) -> tuple[str, ...]:
        total = parts.input(0)
        for other in parts.node.inputs[1:]:
            total = parts.add(total, other, "sum")
        return (parts.mul(total, 1.0 / len(parts.node.inputs)),)
