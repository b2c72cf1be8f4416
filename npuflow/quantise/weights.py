"""Weights and biases of one node as integers: scales that its multipliers, bias
width and accumulator can carry."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import TargetError
from npuflow.hw.elements import sparse_packing
from npuflow.hw.grouped import FRACTION
from npuflow.hw.numerics import along, multiplier_shift
from npuflow.hw.target import Numerics
from npuflow.ir.codes import encode
from npuflow.ir.forms import WIDE_SUM
from npuflow.ir.groups import scaled_groups
from npuflow.ir.op import OpContext
from npuflow.ir.sparsity import Pattern
from npuflow.ir.types import Array, GroupedType, QuantType
from npuflow.quantise.config import Weights
from npuflow.quantise.types import weight_type, widened


def sparse_type(
    site: OpContext, weight: int, codes: Array, quant: QuantType, numerics: Numerics
) -> QuantType:
    """The type of a weight's codes, which says so where they have the zeros that the target skips: along the
    input channels, which lie one after another."""
    pattern, axis = Pattern.read(numerics.sparsity), site.op.group_axis(site, weight)
    if pattern is None or axis is None or quant.group is not None or any(quant.zero_point):
        return quant
    if prod(codes.shape[axis + 1 :]) > 1 or not pattern.holds(codes.reshape(-1, codes.shape[axis])):
        return quant
    one = (pattern.keep, pattern.of)
    width = min((b for b in numerics.weight_bits if b >= quant.bits), default=8)
    known = sparse_packing(width, quant.signed, one)
    return quant if known is None else quant.with_(sparse=one)


Real = npt.NDArray[np.float64]


def coded_weight(
    site: OpContext,
    index: int,
    x: QuantType,
    y: QuantType,
    scheme: Weights,
    numerics: Numerics,
    fixed: QuantType | None = None,
) -> tuple[Array, QuantType]:
    """Codes and type of the constant weight at an input. `site` is the float node; x, y are its activation
    types; `fixed` is a type that is stated: it stays but for channels whose bias or multiplier would not fit
    (those with next to no weights).
    """
    real = site.consts[index]
    assert real is not None
    if isinstance(fixed, GroupedType):
        return encode(real, fixed), fixed
    axis, inner = site.op.channel_axis(site, index), site.op.group_axis(site, index)
    settled = fixed is not None and fixed.axis in (None, axis)
    quant = fixed if fixed is not None and settled else weight_type(real, axis, scheme, numerics, inner)
    gain = site.op.gain()
    if quant.group is not None:
        quant = _by_groups(site, index, real, quant, x, y, numerics)
        return encode(real, quant), quant
    bias = bias_values(site, index + 1, len(quant.scale))
    if bias is not None:
        products = _products(real, quant, axis, x, bias) if settled else _any_products(real, quant, x)
        quant = widened(
            quant, _bias_floor(bias, x, quant, gain * x.scale[0], products, numerics), numerics.power_of_two
        )
    quant = widened(quant, _multiplier_floor(quant.scale, gain * x.scale[0] / y.scale[0], numerics), False)
    return encode(real, quant), quant


def _by_groups(
    site: OpContext, index: int, real: Array, quant: QuantType, x: QuantType, y: QuantType, numerics: Numerics
) -> QuantType:
    """Scales by groups that multipliers, and of two-level ones bias and accumulator, can carry."""
    factor = site.op.gain() * x.scale[0] / y.scale[0]
    if quant.sub_bits is None:
        return widened(quant, _multiplier_floor(quant.scale, factor, numerics), numerics.power_of_two)
    channels = real.shape[quant.axis or 0]
    whole = _of_channels(quant, channels)
    bias = bias_values(site, index + 1, channels)
    floor = np.array(whole.scale)
    if bias is not None:
        unit = site.op.gain() * x.scale[0]
        floor = np.maximum(floor, _bias_floor(bias, x, whole, unit, _any_products(real, whole, x), numerics))
    floor = _multiplier_floor(floor, factor, numerics)
    return widened(quant, floor, numerics.power_of_two)


def _of_channels(quant: QuantType, channels: int) -> QuantType:
    """Two-level scales as one scale for every channel, of codes times integers."""
    assert quant.sub_bits is not None
    scale = tuple(quant.channel_scale(channels).tolist())
    return quant.with_(
        bits=quant.bits + quant.sub_bits, scale=scale, zero_point=(0,) * channels,
        group=None, group_axis=None, sub_bits=None,
    )


def bias_values(site: OpContext, index: int, channels: int) -> Real | None:
    """The real bias in units of the accumulator's real value (C * beta), one per channel
    or the largest for one scale."""
    if not site.present(index) or site.op.role(index) != "bias":
        return None
    stored = site.consts[index]
    assert stored is not None
    flat = np.asarray(stored, np.float64).reshape(-1) * site.op.bias_factor()
    if channels == 1:
        return np.array([flat[np.argmax(np.abs(flat))]])
    return np.broadcast_to(flat, (channels,)) if flat.size in (1, channels) else None


def _any_products(real: Array, quant: QuantType, x: QuantType) -> Real:
    """How far a channel's products can reach, whatever its scale becomes."""
    terms = prod(real.shape) // real.shape[quant.axis] if quant.axis is not None else prod(real.shape)
    reach = max(x.hi - x.zero_point[0], x.zero_point[0] - x.lo)
    return np.array([float(terms * reach * max(abs(quant.lo), quant.hi))])


def _products(real: Array, quant: QuantType, axis: int | None, x: QuantType, bias: Real) -> Real:
    """How far they reach to the bias's own side at stated scales, one number per scale. A quantiser that
    widened a scale until the bias just fits left few codes in that channel, and these leave room."""
    codes = encode(real, quant).astype(np.float64) - along(quant.zero_point, quant.axis, real.ndim)
    rest = tuple(d for d in range(real.ndim) if d != axis)
    below, above = x.lo - x.zero_point[0], x.hi - x.zero_point[0]
    up = np.maximum(codes * below, codes * above).sum(axis=rest).reshape(-1)
    down = np.maximum(-codes * below, -codes * above).sum(axis=rest).reshape(-1)
    if len(up) == len(bias) == len(quant.scale):
        return np.asarray(np.where(bias < 0, down, up))
    return np.array([max(up.max(initial=0.0), down.max(initial=0.0))])


def _bias_floor(
    bias: Real, x: QuantType, weight: QuantType, unit: float, products: Real, numerics: Numerics
) -> Real:
    """Smallest weight scales with which the bias fits its bits (at the largest shift) and leaves the
    accumulator room for `products`."""
    capacity = 1 << (numerics.accumulator(max(x.bits, weight.bits)) - 1)
    room = np.maximum(capacity - products, capacity // 4)
    largest = np.minimum(((1 << (numerics.bias_bits - 1)) - 1) << numerics.bias_shift_max, room - 1)
    return np.abs(bias) / (unit * largest)


def _multiplier_floor(weight: Sequence[float] | Real, factor: float, numerics: Numerics) -> Real:
    """Scales at which every channel has an integer multiplier: channels far below the
    largest are raised to the next one.

    Narrow multipliers with one shift per layer cannot follow every channel; a slightly larger scale costs
    little, a wrong multiplier would scale the whole channel.
    """
    scales = np.array(weight)
    ratio = scales * factor
    try:
        multiplier_shift(ratio, numerics)
        return scales
    except TargetError:
        _, n = multiplier_shift(ratio.max(), numerics)
    wanted = np.ldexp(ratio, n)
    off = np.abs(np.rint(wanted) - wanted) > numerics.multiplier_error * wanted
    raised = np.ldexp(np.maximum(np.ceil(wanted), 1.0), -n) / factor
    return np.where(off, raised, scales)


def coded_bias(
    site: OpContext, index: int, x: QuantType, y: QuantType, weight: QuantType, codes: Array,
    numerics: Numerics,
) -> tuple[Array, QuantType]:
    """Codes and type of the bias: the accumulator's unit times the smallest power of
    two with which all fit; beside sums that are scaled group by group, 2^-n output codes."""
    stored = site.consts[index]
    assert stored is not None
    # Every operator with a bias has its channels in the second dimension of its output.
    channels = site.out_shape[1]
    if weight.sub_bits is not None:
        weight = _of_channels(weight, channels)
    elif isinstance(weight, GroupedType):
        return _wide_bias(site, index, x)
    elif weight.group is not None:
        return _bias_of_groups(site, index, x, y, weight, codes, numerics)
    unit = x.scale[0] * np.broadcast_to(np.asarray(weight.scale, np.float64), (channels,))
    unit = unit * site.op.gain() / site.op.bias_factor()
    real = np.broadcast_to(np.asarray(stored, np.float64).reshape(-1), (channels,))
    if not np.all(np.isfinite(real)):
        raise TargetError("the bias holds NaN or infinity", code="NF-QUANT-006")
    top = (1 << (numerics.bias_bits - 1)) - 1
    sizes = np.abs(np.rint(real / unit))
    shift = 0
    while shift < numerics.bias_shift_max and np.any(np.rint(sizes / (1 << shift)) > top):
        shift += 1
    if np.any(np.rint(sizes / (1 << shift)) > top + 0.5):
        raise TargetError(
            f"a bias of {int(sizes.max())} accumulator units exceeds {numerics.bias_bits} bits shifted by "
            f"{shift}",
            hint="larger activation ranges, per-channel weights, or a target with wider biases",
            code="NF-QUANT-007",
        )
    scale = unit * (1 << shift)
    # One type even when the weight has one scale: the bias is always indexed by channel.
    quant = QuantType(numerics.bias_bits, True, tuple(scale.tolist()), (0,) * channels, axis=0)
    return encode(np.asarray(real), quant), quant


def _wide_bias(site: OpContext, index: int, x: QuantType) -> tuple[Array, QuantType]:
    """64 bits, in units of (input scale x 2^-24), as sums over weights in groups with float16 scales are."""
    stored = site.consts[index]
    assert stored is not None
    channels = site.out_shape[1]
    real = np.broadcast_to(np.asarray(stored, np.float64).reshape(-1), (channels,))
    if not np.all(np.isfinite(real)):
        raise TargetError("the bias holds NaN or infinity", code="NF-QUANT-006")
    scale = x.scale[0] * 2.0**-FRACTION * site.op.gain() / site.op.bias_factor()
    quant = QuantType(WIDE_SUM, True, (scale,) * channels, (0,) * channels, axis=0)
    return encode(real, quant), quant


def _bias_of_groups(
    site: OpContext, index: int, x: QuantType, y: QuantType, weight: QuantType, codes: Array,
    numerics: Numerics,
) -> tuple[Array, QuantType]:
    """64 bits, n as the multipliers of the groups have it."""
    stored = site.consts[index]
    assert stored is not None
    channels = site.out_shape[1]
    real = np.broadcast_to(np.asarray(stored, np.float64).reshape(-1), (channels,)) * site.op.bias_factor()
    if not np.all(np.isfinite(real)):
        raise TargetError("the bias holds NaN or infinity", code="NF-QUANT-006")
    _, n = scaled_groups(site.op, codes, x, weight, y, real, numerics)
    scale = y.scale[0] * 2.0**-n
    quant = QuantType(64, True, (scale / site.op.bias_factor(),) * channels, (0,) * channels, axis=0)
    return encode(np.asarray(real / site.op.bias_factor()), quant), quant
