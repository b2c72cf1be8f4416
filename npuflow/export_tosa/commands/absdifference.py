"""The distance of two scaled tensors, rounded once."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import TosaRefusal
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def absdifference(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    """Where both have one multiplier: the distance is scaled, as it is rounded."""
    c = run[0]
    m = c["a_multiplier"]
    if c["b_multiplier"] != -m:
        raise TosaRefusal("a distance of two scales")
    apart = b.t.sub(b.centred(c, "a"), b.centred(c, "b"))
    size = b.t.op("ABS", [apart], apart.shape, "int32")
    b.views.write(c, b.t.finished(size, c, abs(m), c["shift"], b.peak(c, "a") + b.peak(c, "b")))
    return 1
