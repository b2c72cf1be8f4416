"""Sums of a convolution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import INT32, TosaRefusal, TosaValue, less
from npuflow.export_tosa.windows import ACC, fitted, window_of
from npuflow.ir.types import Array
from npuflow.whole.export_c.whole import TensorCommand


@COMMANDS.entry
def conv(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    """With the bias of the REQUANT behind it."""
    c, t = run[0], b.t
    weights, (batch, channels, _, _) = _weights(b, c), c["x_dims"]
    out, groups = c["out_channels"], c["groups"]
    x = b.views.read(c, "x", c["x_dims"], (0, 2, 3, 1), spread=True)
    zero = c["x_zero"] - less(c["x_type"])
    if x.dtype != "int8":
        raise TosaRefusal(f"a convolution of {c['x_type']}: CONV2D has exact ones of 8 bits")
    bias = _bias(b, c, run)
    peak = b.peak(c, "x") * int(np.abs(weights).reshape(out, -1).sum(1).max())
    if b.sum_peak(c, peak + int(np.abs(bias).max())) >= INT32 or not -128 <= zero <= 127:
        raise TosaRefusal("sums beyond 32 bits, or a zero point outside of the codes")
    if tuple(c["insert"]) != (1, 1):
        x = _spread(b, c, x, zero)
    window = window_of(c)
    x, pads = fitted(t, x, window, (c["out_height"], c["out_width"]))
    attributes = {"pad": pads, "stride": window["stride"], "dilation": window["dilation"], "acc_type": ACC}
    shape = (batch, c["out_height"], c["out_width"], out)
    ends = [t.const([zero], "int8"), t.const([0], "int8")]
    if groups == channels and groups > 1:
        held = weights.reshape(channels, out // groups, *weights.shape[2:]).transpose(2, 3, 0, 1)
        given = [x, t.const(held, "int8"), t.const(bias, "int32"), *ends]
        made = t.op("DEPTHWISE_CONV2D", given, shape, "int32", **attributes)
    else:
        made = t.concat([
            t.op("CONV2D", [part, t.const(w.transpose(0, 2, 3, 1), "int8"), t.const(v, "int32"), *ends],
                 (*shape[:3], out // groups), "int32", **attributes)
            for part, w, v in _groups(b, x, weights, bias, groups)
        ], 3)
    b.views.sums(c, made, (batch, out, c["out_height"], c["out_width"]), (0, 2, 3, 1))
    return 1


def _weights(b: TosaBuilder, c: TensorCommand) -> Array:
    """Centred, [out, in / groups, kernel]."""
    out = c["out_channels"]
    zero = b.constant(c, "w_zeros").reshape(-1, 1, 1, 1) if "w_zeros" in c.fields else c["w_zero"]
    found = b.constant(c, "w").reshape(out, c["x_dims"][1] // c["groups"], *c["kernel"]) - zero
    if found.min() < -128 or found.max() > 127:
        raise TosaRefusal("weights that leave 8 bits without their zero point")
    return found


def _bias(b: TosaBuilder, c: TensorCommand, run: Sequence[TensorCommand]) -> Array:
    """Of the REQUANT of these sums; once, where several convolutions add to them."""
    behind = [one for one in run[1:] if one.opcode == "REQUANT" and one["acc"] == c["acc"]]
    own, _ = b.views.buffers.at(c["acc"])
    if not behind or "bias" not in behind[0].fields or own.number in b.biased:
        return np.zeros(c["out_channels"], np.int64)
    b.biased.add(own.number)
    bias = b.constant(behind[0], "bias") << behind[0]["bias_shift"]
    return np.broadcast_to(bias, (c["out_channels"],))


def _groups(
    b: TosaBuilder, x: TosaValue, weights: Array, bias: Array, groups: int
) -> list[tuple[TosaValue, Array, Array]]:
    size, each = x.shape[3] // groups, len(weights) // groups
    return [
        (b.t.cut(x, (0, 0, 0, g * size), (*x.shape[:3], size)), weights[g * each : (g + 1) * each],
         bias[g * each : (g + 1) * each])
        for g in range(groups)
    ]


def _spread(b: TosaBuilder, c: TensorCommand, x: TosaValue, zero: int) -> TosaValue:
    """The input of a transposed convolution with zeros inserted between its rows and columns."""
    n, h, w, channels = x.shape
    rows, columns = c["insert"]
    made = b.t.reshape(x, (n, h, 1, w, channels))
    made = b.t.pad(made, ((0, 0), (0, 0), (0, rows - 1), (0, 0), (0, 0)), zero)
    made = b.t.reshape(made, (n * h * rows, w, 1, channels))
    made = b.t.pad(made, ((0, 0), (0, 0), (0, columns - 1), (0, 0)), zero)
    made = b.t.reshape(made, (n, h * rows, w * columns, channels))
    return b.t.cut(made, (0,) * 4, (n, h * rows - rows + 1, w * columns - columns + 1, channels))
