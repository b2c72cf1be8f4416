"""LogSoftmax in simpler operators: d - log(sum(exp(d))) with d = x - max(x)."""

from __future__ import annotations

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellLogsoftmax(Decomposition):
    triggers = ("host:logsoftmax",)
    makes = ("reducemax", "sub", "exp", "reducesum", "log", "reshape")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x, axis = parts.input(0), (parts.integer("axis", -1),)
        below = parts.sub(x, parts.reduce("max", x, axis, what="largest"), "below")
        total = parts.reduce("sum", parts.op("exp", (below,)), axis, what="total")
        return (parts.sub(below, parts.op("log", (total,))),)
