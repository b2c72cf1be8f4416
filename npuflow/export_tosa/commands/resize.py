"""Weighted sums of two rows and two columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import INT32, TosaRefusal, TosaValue
from npuflow.ir.types import Array
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def resize(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    c, t = run[0], b.t
    rows, columns = (b.constant(c, name).reshape(-1, 4) for name in ("rows", "columns"))
    rows[:, :2] += c["origin"][0]
    columns[:, :2] += c["origin"][1]
    peak = b.peak(c, "x") * _weight(rows) * _weight(columns)
    if peak >= INT32:
        raise TosaRefusal("sums beyond 32 bits")
    x = t.broadcast(b.centred(c, "x", c["x_dims"], (0, 2, 3, 1)), [c["x_dims"][k] for k in (0, 2, 3, 1)])
    sums = _line(b, _line(b, x, rows, 1), columns, 2)
    made = t.finished(sums, c, c["multiplier"], 2 * c["weight_bits"] + c["shift"], peak)
    dims = (*c["x_dims"][:2], c["out_height"], c["out_width"])
    b.views.write(c, made, dims, (0, 2, 3, 1))
    return 1


def _weight(table: Array) -> int:
    return int(np.abs(table[:, 2:]).sum(1).max())


def _line(b: TosaBuilder, x: TosaValue, table: Array, axis: int) -> TosaValue:
    """The sum of two lines along a dimension of [n, h, w, c], for each line of the result."""
    t, (n, h, w, c) = b.t, x.shape
    made: TosaValue | None = None
    for k in range(2):
        if k and not table[:, 3].any():
            break
        lines = t.const(np.broadcast_to(table[:, k], (n if axis == 1 else n * h, len(table))), "int32")
        flat = t.reshape(x, (n, h, w * c) if axis == 1 else (n * h, w, c))
        shape = (n, len(table), w * c) if axis == 1 else (n * h, len(table), c)
        found = t.reshape(
            t.op("GATHER", [flat, lines], shape, "int32"),
            (n, len(table), w, c) if axis == 1 else (n, h, len(table), c),
        )
        weights = t.const(table[:, 2 + k].reshape((1, -1, 1, 1) if axis == 1 else (1, 1, -1, 1)), "int32")
        part = t.mul(found, weights)
        made = part if made is None else t.add(made, part)
    assert made is not None
    return made
