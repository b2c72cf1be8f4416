"""Elements picked along a dimension by indices."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import less
from npuflow.export_tosa.views import places_of
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def gather(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    """By the place in the flat table, of every element."""
    c, t = run[0], b.t
    a, j, i = c["dims"]
    entries = c["entries"]
    table = b.views.read(c, "x", (a, entries, i), spread=True)
    index = t.add(t.cast(b.views.read(c, "index", (a, j, i)), "int32"), less(c["index_type"]))
    zero = t.number(0, index)
    if c["wrap"]:
        index = t.where(t.two("GREATER", zero, index, "bool"), t.add(index, c["wrap"]), index)
    last = t.number(entries - 1, index)
    index = t.where(t.two("GREATER", zero, index, "bool"), last, index)
    index = t.where(t.two("GREATER", index, last, "bool"), last, index)
    index = t.mul(t.broadcast(index, (a, j, i)), i)
    places = t.add(index, t.const(places_of(0, (a, 1, i), (entries * i, 0, 1)), "int32"))
    b.views.write(c, t.pick(table, places))
    return 1
