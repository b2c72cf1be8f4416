"""Where the largest or smallest element along a dimension is."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import IGNORE, TosaRefusal, held
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def topk(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    """One element: ARGMAX, which gives the first of equal ones."""
    c, t = run[0], b.t
    if c["count"] != 1:
        raise TosaRefusal(f"the {c['count']} largest elements in order")
    a, r, i = c["dims"]
    x = b.views.read(c, "x", spread=True)
    x = x if c["maximum"] else t.op("BITWISE_NOT", [x], x.shape, x.dtype)
    if "y" in c.fields:
        wide = t.cast(x, "int32")
        most = t.cast(t.op("REDUCE_MAX", [wide], (a, 1, i), "int32", axis=1, nan_mode=IGNORE), x.dtype)
        most = most if c["maximum"] else t.op("BITWISE_NOT", [most], most.shape, most.dtype)
        b.views.write(c, most, (a, 1, i))
    if "at" in c.fields:
        turned = t.op("REVERSE", [x], x.shape, x.dtype, axis=1) if c["last"] else x
        at = t.reshape(t.op("ARGMAX", [turned], (a, i), "int32", axis=1, nan_mode=IGNORE), (a, 1, i))
        if c["last"]:
            at = t.sub(t.number(r - 1, at), at)
        b.views.write(c, t.cast(at, held(c["at_type"])), (a, 1, i), name="at")
    return 1
