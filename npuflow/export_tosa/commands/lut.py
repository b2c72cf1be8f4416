"""A function of one number, from a table of all codes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import held, less
from npuflow.hw.elements import ELEMENTS
from npuflow.ir.types import Array
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def lut(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    """TABLE for 8 bits; a look-up by the code for others."""
    c = run[0]
    lo, hi = ELEMENTS[c["x_type"]].range
    table = every(b, c, np.arange(lo, hi + 1)) - less(c["y_type"])
    x, kind = b.views.read(c, "x"), held(c["y_type"])
    if x.dtype == "int8" and kind == "int8":
        made = b.t.op("TABLE", [x, b.t.const(table, kind)], x.shape, kind)
    else:
        made = b.t.pick(b.t.const(table, kind), b.t.add(b.t.cast(x, "int32"), less(c["x_type"]) - lo))
    b.views.write(c, made)
    return 1


def every(b: TosaBuilder, c: TensorCommand, codes: Array) -> Array:
    """The result for each code; those that the table has no entry for get that of the nearest."""
    table = b.constant(c, "table")
    place = codes.astype(np.int64) - c["base"]
    if not c["bits"]:
        return table[np.clip(place, 0, c["entries"] - 1)]
    step = np.clip(place >> c["bits"], 0, c["entries"] - 2)
    part = np.clip(place - (step << c["bits"]), 0, 1 << c["bits"])
    shift = c["bits"] + c["fraction"]
    line = table[step] * ((1 << c["bits"]) - part) + table[step + 1] * part
    return np.clip((line + (1 << (shift - 1))) >> shift, c["lo"], c["hi"])
