"""One factor from zero on, another below."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def prelu(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    c, t = run[0], b.t
    x, slope = b.centred(c, "x"), b.centred(c, "slope")
    peak, both = b.peak(c, "x"), b.peak(c, "x") * b.peak(c, "slope")
    above = t.scaled(x, c["multiplier"], c["shift"], peak, c["rounding"])
    sign = -1 if c["negative"] < 0 else 1
    product = t.mul(t.mul(x, slope), sign)
    below = t.scaled(product, abs(c["negative"]), c["negative_shift"], both, c["rounding"])
    made = t.where(t.two("GREATER_EQUAL", x, 0, "bool"), above, below)
    b.views.write(c, t.codes(made, c["zero"], c["lo"], c["hi"], c["y_type"]))
    return 1
