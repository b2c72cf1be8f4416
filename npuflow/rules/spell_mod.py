"""Mod of floats by a constant: what whole multiples leave, with the sign of the first operand (fmod) or the
second."""

from __future__ import annotations

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellMod(Decomposition):
    triggers = ("host:mod",)
    makes = ("mul", "sub", "floor", "abs", "sign")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x, by = parts.input(0), parts.number(1)
        if by is None:
            return "the divisor is not a constant"
        if not np.all(by) or not np.isfinite(by).all():
            return "a divisor that is 0 or infinite"
        shares = parts.mul(x, parts.const(1.0 / by, "inverse"), "shares")
        if parts.integer("fmod", 0):      # towards 0
            whole = parts.op("floor", (parts.op("abs", (shares,)),))
            shares = parts.mul(parts.op("sign", (shares,)), whole)
        else:
            shares = parts.op("floor", (shares,))
        return (parts.sub(x, parts.mul(shares, parts.const(by, "divisor"))),)
