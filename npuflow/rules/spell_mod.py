"""Spells Mod of floats as what whole multiples of a constant or positive divisor leave.
It has the sign of the first operand (fmod) or the second.
"""

from __future__ import annotations

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._signs import positive


@RULES.entry
class SpellMod(Decomposition):
    triggers = ("host:mod",)
    makes = ("mul", "div", "sub", "floor", "abs", "sign")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        x, by = parts.input(0), parts.number(1)
        if by is None and not positive(parts.graph, parts.input(1)):
            return "the divisor is neither a constant nor known to be positive"
        if by is not None and (not np.all(by) or not np.isfinite(by).all()):
            return "a divisor that is 0 or infinite"
        divisor = parts.input(1) if by is None else parts.const(by, "divisor")
        if by is None:
            shares = parts.div(x, divisor, "shares")
        else:
            shares = parts.mul(x, parts.const(1.0 / by, "inverse"), "shares")
        if parts.integer("fmod", 0):      # towards 0
            whole = parts.op("floor", (parts.op("abs", (shares,)),))
            shares = parts.mul(parts.op("sign", (shares,)), whole)
        else:
            shares = parts.op("floor", (shares,))
        return (parts.sub(x, parts.mul(shares, divisor)),)
