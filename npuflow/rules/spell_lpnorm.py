"""LpNormalization in simpler operators: x over the sum of magnitudes, or over the
root of the sum of squares."""

from __future__ import annotations

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts

_LEAST = float(np.finfo(np.float32).tiny)      # a norm of 0 gives 0, not 0 / 0


@RULES.entry
class SpellLpnorm(Decomposition):
    triggers = ("host:lpnormalization",)
    makes = ("abs", "mul", "reducesum", "sqrt", "clip", "div", "reshape")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x, axis, p = parts.input(0), parts.integer("axis", -1), parts.integer("p", 2)
        if p not in (1, 2):
            return f"p = {p}"
        power = parts.op("abs", (x,)) if p == 1 else parts.mul(x, x, "square")
        norm = parts.reduce("sum", power, (axis,), what="norm")
        norm = norm if p == 1 else parts.op("sqrt", (norm,), "norm")
        return (parts.div(x, parts.clip(norm, _LEAST)),)
