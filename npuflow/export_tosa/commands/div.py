"""A quotient of two tensors of 8 bits, from a table of all pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import TosaRefusal, held, less
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.numerics import divide_round
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def div(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    c = run[0]
    ends = [ELEMENTS[c[f"{name}_type"]].range for name in ("a", "b")]
    if any(hi - lo > 255 for lo, hi in ends):
        raise TosaRefusal("a quotient of 16 bits")
    one, other = (np.arange(lo, hi + 1).astype(object) for lo, hi in ends)
    up, down = max(-c["shift"], 0), max(c["shift"], 0)
    num = ((one - c["a_zero"]) * c["multiplier"] * (1 << up))[:, None] + 0 * other[None]
    den = ((other - c["b_zero"]) * (1 << down))[None] + 0 * one[:, None]
    found = np.clip(divide_round(num, den, c["rounding"]) + c["zero"], c["lo"], c["hi"])
    table = b.t.const(found.reshape(-1).astype(np.int64) - less(c["y_type"]), held(c["y_type"]))
    rows, columns = (
        b.t.add(b.t.cast(b.views.read(c, name), "int32"), less(c[f"{name}_type"]) - lo)
        for name, (lo, _) in zip(("a", "b"), ends, strict=True)
    )
    b.views.write(c, b.t.pick(table, b.t.add(b.t.mul(rows, len(other)), columns)))
    return 1
