"""Sums or maxima along dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import IGNORE, INT32, TosaRefusal
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def reduce(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    c = run[0]
    a, r, i = c["dims"]
    peak = b.sum_peak(c, b.peak(c, "x") * (1 if c["maximum"] else r), more=not c["maximum"])
    x = b.t.broadcast(b.centred(c, "x"), (a, r, i))
    if c["maximum"]:
        made = b.t.op("REDUCE_MAX", [x], (a, 1, i), "int32", axis=1, nan_mode=IGNORE)
    else:
        if peak >= INT32:
            raise TosaRefusal("sums beyond 32 bits")
        made = b.t.op("REDUCE_SUM", [x], (a, 1, i), "int32", axis=1)
    together = "MAXIMUM" if c["maximum"] else "ADD"
    b.views.sums(c, b.t.reshape(made, (a, i)), (a, i), operator=together)
    return 1
