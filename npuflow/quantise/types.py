"""From ranges to QuantTypes: scales and zero points of activations and weights."""

from __future__ import annotations

from math import ceil, floor, log2

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import TargetError
from npuflow.calibrators import Grid
from npuflow.hw.target import Numerics
from npuflow.ir.types import Array, QuantType
from npuflow.quantise.config import Weights, check_width

Real = npt.NDArray[np.float64]
SMALLEST = 1e-30                          # a scale below this serves no tensor
EXACT = 1e-6                              # of a whole number: what float32 scales miss it by
AT_ONCE = 1 << 24                         # weights that are looked at together, in float64


def usable_scale(scale: float, power_of_two: bool) -> float:
    """The scale as it is kept: the power of two at or above it, else the nearest float32
    (models store scales as such)."""
    scale = max(scale, SMALLEST)
    return 2.0 ** ceil(log2(scale) - 1e-6) if power_of_two else float(np.float32(scale))


def usable_scales(scales: Real, power_of_two: bool) -> Real:
    """The same of many."""
    if power_of_two:
        return np.vectorize(lambda s: usable_scale(float(s), True), otypes=[np.float64])(scales)
    return np.maximum(scales, SMALLEST).astype(np.float32).astype(np.float64)


def activation_type(lo: float, hi: float, grid: Grid, both_signs: bool = True) -> QuantType:
    """The type whose codes cover [lo, hi] and zero. `both_signs` False: signedness is settled."""
    if not (np.isfinite(lo) and np.isfinite(hi)) or lo > hi:
        raise TargetError(
            f"no quantisation for the range [{lo}, {hi}]",
            hint="look for NaN or infinity in this tensor", code="NF-QUANT-004",
        )
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    signed = grid.signed
    if grid.symmetric and both_signs and lo == 0.0 and hi > 0.0:
        signed = False                   # a sign would waste half of the codes
    if grid.symmetric and not signed and lo < 0.0:
        if both_signs:
            signed = True
        elif lo < -hi / (1 << (grid.bits + 1)):
            raise TargetError(
                f"the range [{lo:.4g}, {hi:.4g}] has negative values, but codes are unsigned with zero "
                "point 0",
                hint="signed = true or symmetric = false under [quantize.activations], where the target "
                "allows it",
                code="NF-QUANT-005",
            )
        lo = lo if signed else 0.0       # less than half a step: rounds to 0
    codes = QuantType(grid.bits, signed, (1.0,), narrow=grid.narrow and signed)
    if hi == lo:
        return codes.with_(scale=(usable_scale(1.0 / 128, grid.power_of_two),))
    if grid.symmetric:
        need = max(hi / codes.hi, lo / codes.lo if codes.lo else 0.0)
        return codes.with_(scale=(usable_scale(need, grid.power_of_two),))
    scale = usable_scale((hi - lo) / (codes.hi - codes.lo), grid.power_of_two)
    zero = int(np.clip(np.rint(codes.lo - lo / scale), codes.lo, codes.hi))
    return codes.with_(scale=(scale,), zero_point=(zero,))


def in_whole_steps(quant: QuantType) -> QuantType:
    """The type with a scale of one over a whole number, the next larger one. Softmax computes with that
    number: 259 for 259.4 made all results .2 % too small, half a code at the top."""
    steps = 1.0 / quant.scale[0]
    if steps < 1.0 or abs(steps - round(steps)) <= EXACT * steps:
        return quant
    return quant.with_(scale=(float(np.float32(1.0 / floor(steps))),))


def weight_type(
    array: Array, axis: int | None, scheme: Weights, numerics: Numerics, inner: int | None = None
) -> QuantType:
    """Per channel along `axis` if there is one and scheme and target allow, else per tensor; and by groups
    along `inner` where the scheme has groups and there are several."""
    check_width(scheme.bits, numerics.weight_bits, "weights")
    if scheme.per == "tensor" or not numerics.per_channel_weights:
        axis = None
    symmetric = scheme.symmetric or not numerics.weight_zero_point
    codes = QuantType(scheme.bits, scheme.signed or symmetric, (1.0,), axis=axis, narrow=scheme.narrow)
    pow2 = numerics.power_of_two
    grid = Grid(codes.bits, codes.signed, symmetric, codes.narrow, pow2)
    if axis is not None and inner is not None and 0 < scheme.group < array.shape[inner]:
        return _grouped_type(array, axis, inner, scheme, codes, grid)
    rows = array.reshape(1, -1)
    if axis is not None:
        rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    lo, hi = _spans(rows, scheme, grid)
    need = _needed(lo, hi, codes, symmetric)
    # A channel of zeros takes the layer's largest scale: its codes are 0 anyway, and multipliers stay alike.
    need = np.where(need > 0, need, need.max() if need.max() > 0 else 1.0 / codes.hi)
    scales = tuple(usable_scales(need, pow2).tolist())
    if symmetric:
        return codes.with_(scale=scales, zero_point=(0,) * len(scales))
    return codes.with_(scale=scales, zero_point=_zero_points(lo, np.array(scales), codes))


def _needed(lo: Real, hi: Real, codes: QuantType, symmetric: bool) -> Real:
    """The smallest scales whose codes cover [lo, hi]."""
    return np.maximum(hi / codes.hi, lo / codes.lo) if symmetric else (hi - lo) / (codes.hi - codes.lo)


def _zero_points(lo: Real, scale: Real, codes: QuantType) -> tuple[int, ...]:
    """The codes of 0 where the lowest codes stand for `lo`."""
    zeros = np.clip(np.rint(codes.lo - lo / scale), codes.lo, codes.hi)
    return tuple(zeros.astype(int).reshape(-1).tolist())


def _spans(rows: Array, scheme: Weights, grid: Grid) -> tuple[Real, Real]:
    """Ends of every row, in float64: of as many rows at a time as memory is meant for."""
    step = max(1, AT_ONCE // max(1, rows.shape[1]))
    found = [
        scheme.calibrator.rows(rows[at : at + step].astype(np.float64), grid)
        for at in range(0, len(rows), step)
    ]
    lo, hi = (np.concatenate(ends) for ends in zip(*found, strict=True))
    return lo, hi


def _grouped_type(
    real: Array, axis: int, inner: int, scheme: Weights, codes: QuantType, grid: Grid
) -> QuantType:
    """Scales by channel and group, and zero points where the grid is not symmetric."""
    moved = np.moveaxis(real, (axis, inner), (0, 1))
    parts = np.split(moved, range(scheme.group, moved.shape[1], scheme.group), axis=1)
    spans = [_spans(part.reshape(len(part), -1), scheme, grid) for part in parts]
    lo, hi = (np.stack(ends, axis=1) for ends in zip(*spans, strict=True))    # [channels, groups]
    need = _needed(lo, hi, codes, grid.symmetric)
    largest = need.max(1, keepdims=True)
    largest = np.where(largest > 0, largest, need.max() if need.max() > 0 else 1.0 / codes.hi)
    need = np.where(need > 0, need, largest)              # groups of zeros: any scale will do
    bits = scheme.sub_scale_bits or None
    scale = group_scales(need, bits, grid.power_of_two)
    zeros = (0,) if grid.symmetric else _zero_points(lo, scale, codes)
    return codes.with_(
        scale=tuple(scale.reshape(-1).tolist()), zero_point=zeros, group=scheme.group, group_axis=inner,
        sub_bits=bits,
    )


def group_scales(wanted: Real, sub_bits: int | None, power_of_two: bool) -> Real:
    """Scales [..., channels, groups] as they are kept: float32 each, or integers of so many bits times a
    float32 number of the channel, the largest of them the largest integer."""
    if sub_bits is None:
        return usable_scales(wanted, power_of_two)
    top = (1 << sub_bits) - 1
    one = usable_scales(wanted.max(-1, keepdims=True) / top, power_of_two)
    steps = np.clip(np.ceil(wanted / one - 1e-6), 1, top)
    steps = np.where(wanted == wanted.max(-1, keepdims=True), top, steps)
    return np.asarray(one * steps)


def widened(quant: QuantType, floor: Real, power_of_two: bool) -> QuantType:
    """The weight type with every scale raised to at least `floor`; zero points move so that
    the lower end stays covered."""
    if quant.group is not None:
        return _widened_groups(quant, floor, power_of_two)
    scales, zeros = [], []
    least = np.broadcast_to(floor, (len(quant.scale),)).tolist()
    for scale, zero, smallest in zip(quant.scale, quant.zero_point, least, strict=True):
        if smallest <= scale:
            scales.append(scale)
            zeros.append(zero)
            continue
        raised = 2.0 ** ceil(log2(smallest) - 1e-6) if power_of_two else smallest
        scales.append(raised)
        moved = np.rint(quant.lo - (quant.lo - zero) * scale / raised)
        zeros.append(zero if zero == 0 else int(np.clip(moved, quant.lo, quant.hi)))
    return quant.with_(scale=tuple(scales), zero_point=tuple(zeros))


def _widened_groups(quant: QuantType, floor: Real, power_of_two: bool) -> QuantType:
    """The same of scales by groups. `floor`: for every scale; of two-level ones, for every channel."""
    scale = np.array(quant.scale)
    if quant.sub_bits is not None:
        rows = scale.reshape(len(floor), -1)
        own = quant.channel_scale(len(rows))[:, None]
        raised = np.array([usable_scale(float(s), power_of_two) for s in floor])[:, None]
        scale = np.where(raised > own, np.rint(rows / own) * raised, rows).reshape(-1)
    else:
        raised = np.exp2(np.ceil(np.log2(floor) - 1e-6)) if power_of_two else floor
        scale = np.where(floor > scale, raised, scale)
    low = (quant.lo - np.array(quant.zero_point)) * np.array(quant.scale)
    zeros = _zero_points(low, scale, quant) if len(quant.zero_point) > 1 else quant.zero_point
    return quant.with_(scale=tuple(scale.tolist()), zero_point=zeros)
