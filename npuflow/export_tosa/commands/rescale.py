"""Codes of one scale as codes of another."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def rescale(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    c = run[0]
    made = b.t.finished(b.centred(c, "x"), c, c["multiplier"], c["shift"], b.peak(c, "x"))
    b.views.write(c, made)
    return 1
