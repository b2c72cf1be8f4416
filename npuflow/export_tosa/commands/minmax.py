"""The smaller or the larger of two tensors' elements."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import held, less
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def minmax(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    """All three have one scale, and one type."""
    c = run[0]
    a, other = (b.t.cast(b.views.read(c, name), "int32") for name in ("a", "b"))
    made = b.t.two("MAXIMUM" if c["maximum"] else "MINIMUM", a, other)
    made = b.t.clamped(made, c["lo"] - less(c["y_type"]), c["hi"] - less(c["y_type"]))
    b.views.write(c, b.t.cast(made, held(c["y_type"])))
    return 1
