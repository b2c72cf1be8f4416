"""A product of two tensors."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import INT32, TosaRefusal
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def mul(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    c = run[0]
    peak = b.peak(c, "a") * b.peak(c, "b")
    if peak >= INT32:
        raise TosaRefusal("products beyond 32 bits")
    made = b.t.mul(b.centred(c, "a"), b.centred(c, "b"))
    b.views.write(c, b.t.finished(made, c, c["multiplier"], c["shift"], peak))
    return 1
