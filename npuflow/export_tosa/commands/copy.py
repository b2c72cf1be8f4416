"""Elements from one place to another."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def copy(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    b.views.write(run[0], b.views.read(run[0], "x"))
    return 1
