"""One number in every place."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import held, less
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def fill(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    c = run[0]
    code = b.t.const([c["value"] - less(c["y_type"])], held(c["y_type"]))
    b.views.write(c, b.t.reshape(code, (1,) * len(c["dims"])))
    return 1
