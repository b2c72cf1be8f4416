"""From accumulators to codes: multipliers, clamp bounds, bias shift, overflow proof,
and the REQUANT command."""

from __future__ import annotations

from collections.abc import Callable
from math import log2

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import TargetError
from npuflow.hw.numerics import multiplier_shift, quantize, requantize
from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import Bound, OpContext
from npuflow.ir.overflow import Overflow
from npuflow.ir.space import DimMap, Operand
from npuflow.ir.types import Array, IntArray, QuantType

Real = npt.NDArray[np.float64]
SAME = 1e-9                               # by which numbers are off that are one in exact arithmetic
AT_ONCE = 1 << 24                         # codes of a weight that are made 64 bits wide at a time


def clamp_bounds(clip: tuple[Bound, Bound] | None, quant: QuantType) -> tuple[int, int]:
    """[lo, hi] of the output codes: the range of the type, cut by the fused clip."""
    if clip is None:
        return quant.lo, quant.hi
    if any(isinstance(bound, tuple) for bound in clip):
        raise TargetError("a clip per channel on an operator without weights", code="NF-QUANT-013")
    lo, hi = quantize(np.array(clip), quant.scale[0], quant.zero_point[0], quant.lo, quant.hi).tolist()
    return lo, hi


def clamps(site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
    """The same of REQUANT, which may clamp each channel on its own: lo or los, hi or his."""
    clip, quant = site.op.clip, site.out_quant
    if clip is None or not any(isinstance(bound, tuple) for bound in clip):
        lo, hi = clamp_bounds(clip, quant)
        return {"lo": lo, "hi": hi}
    if not numerics.per_channel_clamp:
        raise TargetError("a clip per channel; the target clamps a tensor as a whole", code="NF-QUANT-014")
    ends = [
        quantize(np.array(bound), quant.scale[0], quant.zero_point[0], quant.lo, quant.hi) for bound in clip
    ]
    return {**vector("lo", ends[0], "int32"), **vector("hi", ends[1], "int32")}


def vector(name: str, values: npt.ArrayLike, dtype: str) -> dict[str, int | Array]:
    """`name`: one integer if all are equal, else `names`: an array of the dtype that the command reads."""
    array = np.atleast_1d(np.asarray(values, np.int64))
    return {name: int(array[0])} if np.all(array == array[0]) else {f"{name}s": array.astype(dtype)}


def product_ratio(site: OpContext, gain: float = 1.0) -> Real:
    """Real multiplier from accumulator units (input scale * weight scale) to output
    codes, per channel or one."""
    pair = site.quant(0).scale, site.quant(1).scale
    if site.consts[1] is not None or len(site.out_quant.scale) == len(pair[0]) == 1 == len(pair[1]):
        return gain * pair[0][0] * np.asarray(pair[1], np.float64) / site.out_quant.scale[0]
    # activations with scales of their own along a dimension of the result: all have one multiplier
    ratio = np.asarray(pair[0]) * np.asarray(pair[1]) / np.asarray(site.out_quant.scale)
    assert np.allclose(ratio, ratio[0], rtol=SAME, atol=0), "heads with multipliers of their own"
    return gain * ratio[:1]


def requant_params(site: OpContext, ratio: npt.ArrayLike, numerics: Numerics) -> dict[str, int | Array]:
    """multiplier(s), shift, lo(s), hi(s) of REQUANT."""
    m, n = multiplier_shift(ratio, numerics)
    return {
        **vector("multiplier", m, "uint32"),
        "shift": n,
        **clamps(site, numerics),
    }


def per_channel(site: OpContext, name: str, shape: list[int]) -> int | Array:
    """A parameter that is one number, or (`names`) one per channel: then shaped to meet the output."""
    held = f"{name}s"
    return site.array(held).astype(np.int64).reshape(shape) if held in site.params else site.param(name)


def bias_shift(bias: QuantType, unit: Real) -> int:
    """k of bias << k: how many binary orders the bias scale lies above the accumulator's unit."""
    k = log2(bias.scale[0] / float(np.broadcast_to(unit, (len(bias.scale),))[0]))
    if abs(k - round(k)) > 1e-9 or k < -0.5:
        raise TargetError(
            f"the bias scale {bias.scale[0]:.6g} is not a power of two times the accumulator's "
            f"{float(unit[0]):.6g}",
            code="NF-QUANT-015",
        )
    return round(k)


def zero_points(quant: QuantType) -> dict[str, int | Array]:
    """w_zero or w_zeros: the zero point of a weight, one or per channel."""
    return vector("w_zero", quant.zero_point, "int32")


def centred(q: IntArray, quant: QuantType) -> npt.NDArray[np.int64]:
    """q - zero_point, of channels and groups of weights their own."""
    if len(quant.zero_point) == 1:
        return q.astype(np.int64) - quant.zero_point[0]
    return q.astype(np.int64) - quant.spread(q.shape)[1]


def finish(
    site: OpContext, acc: Array, channel_axis: int, numerics: Numerics, bias: IntArray | None = None
) -> IntArray:
    """The specification of REQUANT: bias, multiplier, one rounding, zero point, clamp."""
    total = np.asarray(acc).astype(np.int64)
    shape = [-1 if d == channel_axis % total.ndim else 1 for d in range(total.ndim)]
    if bias is not None:
        total = total + (bias.astype(np.int64) << site.param("bias_shift")).reshape(shape)
    m, lo, hi = (per_channel(site, name, shape) for name in ("multiplier", "lo", "hi"))
    q = site.out_quant
    return requantize(total, m, site.param("shift"), q.zero_point[0], lo, hi, numerics.rounding).astype(
        q.dtype
    )


def emit_requant(
    site: OpContext, tile: TileView, em: Emitter, channel_dim: int, bias: int | None = None
) -> None:
    """REQUANT of the whole accumulator into the output; `channel_dim` counts the output's
    dimensions, `bias` is an input."""
    assert tile.acc is not None
    y = tile.outputs[0]
    fields: dict[str, object] = {"zero": site.out_quant.zero_point[0], "rounding": em.numerics.rounding}
    fields["shift"] = site.param("shift")
    for name in ("multiplier", "lo", "hi"):
        held = f"{name}s"
        fields.update({held: tile.params[held].address} if held in site.params else {name: site.param(name)})
    if bias is not None and site.present(bias):
        b = tile.input(bias)
        fields.update(bias=b.address, bias_type=b.dtype, bias_shift=site.param("bias_shift"))
    em.emit("REQUANT", acc=tile.acc.address, acc_type=tile.acc.dtype, **y.as4("y"), dims=y.dims4(),
            channel_axis=min(4 - len(y.box) + channel_dim, 3), **fields)


def channel_params(site: OpContext, axis: str) -> tuple[Operand, ...]:
    """Operands of the per-channel parameter arrays, indexed by one axis."""
    return tuple(
        Operand(name, tuple(site.array(name).shape), (DimMap(axis),))
        for name in ("multipliers", "w_zeros", "los", "his", "lows", "highs")
        if name in site.params
    )


def prove(low: npt.ArrayLike, high: npt.ArrayLike, have: int, what: str) -> None:
    """Refuse when the sums [low, high], as bounded by the actual constants, leave the
    `have` bits of the accumulator."""
    worst_low, worst_high = int(np.min(low)), int(np.max(high))
    bound = 1 << (have - 1)
    if worst_low < -bound or worst_high >= bound:
        needed = max((-worst_low - 1).bit_length(), worst_high.bit_length()) + 1
        raise Overflow(
            f"sums of {what} reach [{worst_low}, {worst_high}]: {needed} bits, the accumulator has {have}",
            needed - have,
            hint="fewer weight or activation bits for this layer, or a target with a wider accumulator",
            code="NF-QUANT-017",
        )


def sum_bounds(
    weight: npt.NDArray[np.int64], x: QuantType, bias: IntArray | None, shift: int
) -> tuple[IntArray, IntArray]:
    """Lowest and highest sum per row of `weight` [rows, terms] (centred) over all codes
    of x; so any part of the sum."""
    x_lo, x_hi = min(x.lo - x.zero_point[0], 0), max(x.hi - x.zero_point[0], 0)
    positive, negative = np.maximum(weight, 0).sum(1), np.minimum(weight, 0).sum(1)
    low, high = positive * x_lo + negative * x_hi, positive * x_hi + negative * x_lo
    if bias is None:
        return low, high
    # The bias is added last: the sums must fit without it as well as with it.
    b = bias.astype(np.int64) << shift
    return np.minimum(low, low + b), np.maximum(high, high + b)


def weight_bounds(
    weight: IntArray,
    quant: QuantType,
    rows: Callable[[IntArray], IntArray],
    x: QuantType,
    bias: IntArray | None = None,
    shift: int = 0,
) -> tuple[IntArray, IntArray]:
    """The same for codes of a weight, which `rows` lays out as [rows, terms]; a large one is not made wide as
    a whole."""
    zeros = set(quant.zero_point)
    if weight.size <= AT_ONCE or len(zeros) > 1:
        return sum_bounds(rows(centred(weight, quant)), x, bias, shift)
    (zero,), whole = zeros, rows(weight)
    step = max(1, AT_ONCE // whole.shape[1])
    found = [
        sum_bounds(
            whole[at : at + step].astype(np.int64) - zero, x, None if bias is None else bias[at : at + step],
            shift,
        )
        for at in range(0, len(whole), step)
    ]
    low, high = (np.concatenate(ends) for ends in zip(*found, strict=True))
    return low, high


def product_bounds(a: QuantType, b: QuantType, terms: int) -> tuple[int, int]:
    """The sum of `terms` products of two activations, whatever their codes."""
    peak = [max(abs(q.lo - q.zero_point[0]), abs(q.hi - q.zero_point[0])) for q in (a, b)]
    return -terms * peak[0] * peak[1], terms * peak[0] * peak[1]
