"""The mean of a window: sums by a convolution, and a multiplier by the number of elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import INT32, TosaRefusal, less
from npuflow.export_tosa.windows import ACC, fitted, window_of
from npuflow.ir.types import Array
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def avgpool(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    c, t = run[0], b.t
    zero, peak = c["x_zero"] - less(c["x_type"]), b.peak(c, "x") * prod(c["kernel"])
    x = b.views.read(c, "x", c["x_dims"], (0, 2, 3, 1), spread=True)
    if x.dtype != "int8" or not -128 <= zero <= 127 or peak >= INT32:
        raise TosaRefusal(f"means of {c['x_type']}: sums of windows are exact for 8 bits")
    window = window_of(c)
    n, channels = c["x_dims"][:2]
    rows, columns = c["out_height"], c["out_width"]
    x, pads = fitted(t, x, window, (rows, columns))
    given = [
        x, t.const(np.ones((*c["kernel"], channels, 1)), "int8"), t.const(np.zeros(channels), "int32"),
        t.const([zero], "int8"), t.const([0], "int8"),
    ]
    attributes = {"pad": pads, "stride": window["stride"], "dilation": window["dilation"], "acc_type": ACC}
    sums = t.op("DEPTHWISE_CONV2D", given, (n, rows, columns, channels), "int32", **attributes)
    counts = np.outer(_counts(c, 0, rows), _counts(c, 1, columns)).reshape(-1)
    factors = b.constant(c, "multipliers")[counts]
    dims, order = (n, channels, rows, columns), (0, 2, 3, 1)
    if (factors == factors[0]).all():
        made = t.finished(sums, c, factors[:1], c["shift"], peak)
    else:
        by_place = t.reshape(t.transpose(sums, (0, 3, 1, 2)), (n * channels, rows * columns))
        made = t.finished(by_place, c, factors, c["shift"], peak)
        made, order = t.reshape(made, dims), (0, 1, 2, 3)
    b.views.write(c, made, dims, order)
    return 1


def _counts(c: TensorCommand, d: int, size: int) -> Array:
    """How many coordinates of each window count."""
    starts = np.arange(size) * c["stride"][d] + c["origin"][d]
    places = starts[:, None] + np.arange(c["kernel"][d])[None] * c["dilation"][d]
    return ((places >= c["count_lo"][d]) & (places < c["count_hi"][d])).sum(1)
