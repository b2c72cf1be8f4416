"""Every rounding, shift and saturation of the compiler (the simulator alone has
arithmetic of its own, on purpose).

Exact integers throughout: int64 where the product provably fits, Python integers where it might not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import frexp
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import TargetError
from npuflow.hw.target import Numerics, Rounding

Ints = npt.NDArray[Any]               # int64, or Python integers where products may not fit
Floats = npt.NDArray[np.float64]
EXACT_BYTES = 4                       # of codes whose differences from a zero point float64 holds ...
SMALL_BYTES, SMALL_BITS = 2, 16       # ... and float32: with zero points of so many bits
FLOAT_EXACT = 2**52                   # whole numbers below it are exact in float64


def quantize(real: npt.ArrayLike, scale: npt.ArrayLike, zero_point: npt.ArrayLike, lo: int, hi: int) -> Ints:
    """clamp(round_half_even(real / scale) + zero_point, lo, hi) in float64; NaN becomes the zero point."""
    zero = np.asarray(zero_point, np.int64)
    ratio = np.asarray(np.asarray(real, np.float64) / np.asarray(scale, np.float64))
    wide = max(-lo, hi, int(np.abs(zero).max(initial=0))) >= FLOAT_EXACT
    if wide or np.broadcast(ratio, zero).shape != ratio.shape:
        ratio = np.nan_to_num(ratio, nan=0.0, posinf=1e18, neginf=-1e18)
        return np.clip(np.clip(np.rint(ratio), -(2.0**62), 2.0**62).astype(np.int64) + zero, lo, hi)
    # in place; whole numbers too large for float64 to add to lie beyond the codes before and after
    np.rint(ratio, out=ratio)
    ratio[np.isnan(ratio)] = 0.0
    ratio += zero
    found: Ints = np.clip(ratio, lo, hi, out=ratio).astype(np.int64)[()]
    return found


def dequantize(q: npt.ArrayLike, scale: npt.ArrayLike, zero_point: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """float32(scale * (q - zero_point)), computed in float64."""
    codes, zero, size = np.asarray(q), np.asarray(zero_point, np.int64), np.asarray(scale, np.float64)
    if codes.dtype.itemsize > EXACT_BYTES or np.broadcast(codes, zero, size).shape != codes.shape:
        return (size * (codes.astype(np.int64) - zero)).astype(np.float32)
    # in place: a large array anew takes several times as long as the arithmetic. Products of float32 scales
    # with numbers of 17 bits are exact in float64: rounded at once they are the same
    small = codes.dtype.itemsize <= SMALL_BYTES and np.abs(zero).max(initial=0) < 2**SMALL_BITS
    single = small and bool((size.astype(np.float32) == size).all())
    real = np.asarray(np.subtract(codes, zero, dtype=np.float32 if single else np.float64))
    real *= size.astype(real.dtype)
    found: npt.NDArray[np.float32] = real.astype(np.float32, copy=False)[()]
    return found


def along(values: Sequence[float] | npt.ArrayLike, axis: int | None, rank: int) -> npt.NDArray[Any]:
    """Shape a per-channel vector so that it broadcasts along `axis` of a tensor of that
    rank (scalar if axis is None)."""
    array = np.asarray(values)
    if axis is None:
        return array.reshape(-1)[:1].reshape((1,) * rank) if rank else array.reshape(-1)[0]
    return array.reshape([-1 if d == axis else 1 for d in range(rank)])


def multiplier_shift(ratio: npt.ArrayLike, numerics: Numerics, signed: bool = False) -> tuple[Ints, int]:
    """Integer multipliers m and one shift n with m / 2^n close to every ratio: n the largest
    with all m < 2^multiplier_bits.

    `ratio`: positive reals (signed=True: magnitudes are taken, the sign returns in m).
    multiplier_bits 1 means m = 1. Raises TargetError when a multiplier would be 0 or its relative
    error exceeds `numerics.multiplier_error`.
    """
    real = np.atleast_1d(np.asarray(ratio, np.float64))
    size = np.abs(real) if signed else real
    if not np.all(np.isfinite(size)) or np.any(size < 0) or not np.any(size > 0):
        raise TargetError(
            f"no integer multiplier for the ratio {size.max():.3g}",
            hint="check the thresholds of this layer", code="NF-QUANT-008",
        )
    top = float(size.max())
    bits = numerics.multiplier_bits
    exponent = frexp(top)[1]                       # top < 2^exponent
    n = min(bits - exponent + 1, numerics.shift_max)
    while n > -numerics.shift_left_max and np.rint(np.ldexp(top, n)) >= 2**bits:
        n -= 1
    if not -numerics.shift_left_max <= n or np.rint(np.ldexp(top, n)) >= 2**bits:
        raise TargetError(
            f"the ratio {top:.6g} needs a left shift of {-n} bits or more; the target has "
            f"{numerics.shift_left_max}",
            hint="raise the output threshold of this layer or choose a target with shift_left_max",
            code="NF-QUANT-009",
        )
    m = np.rint(np.ldexp(size, n)).astype(np.int64)
    wrong = np.abs(np.ldexp(m.astype(np.float64), -n) - size) > numerics.multiplier_error * size
    if np.any(wrong & (size > 0)):
        worst = int(np.argmax(wrong))
        raise TargetError(
            f"multiplier {m[worst]} / 2^{n} is more than {numerics.multiplier_error:g} away from "
            f"{size[worst]:.6g}"
            f" (largest ratio of the layer: {top:.6g}, {bits} multiplier bits)",
            hint="quantise this layer per tensor, equalise its channels, or use a target with wider "
            "multipliers",
            code="NF-QUANT-010",
        )
    return (m * np.sign(real).astype(np.int64) if signed else m), int(n)


def group_multipliers(
    ratio: Floats, low: Ints, high: Ints, bias: npt.ArrayLike, numerics: Numerics
) -> tuple[Ints, int]:
    """Multipliers m and one shift n of sums that are scaled group by group, as in
    R((sum of acc * m + b) / 2^n): `ratio` [channels, groups], from sums to output codes; `low`, `high`: what
    the sum of each group can be; `bias`: of every channel, in output codes.

    The most multiplier bits with which no sum of products and bias leaves 62 bits, so that half a code on
    top of it fits a signed 64-bit integer.
    """
    reach = np.maximum(np.abs(low), np.abs(high)).astype(np.float64)
    peak = np.abs(np.broadcast_to(np.asarray(bias, np.float64), ratio.shape[:1]))
    for bits in range(numerics.multiplier_bits, 1, -1):
        narrow = replace(numerics, multiplier_bits=bits)
        m, n = multiplier_shift(ratio.reshape(-1), narrow)
        found = m.reshape(ratio.shape)
        sums = (reach * found).sum(1) + np.ldexp(peak, n)
        if sums.max(initial=0.0) < 2.0**61.9:
            return found, n
    raise TargetError(
        "sums of scaled groups leave 64 bits whatever the multipliers",
        hint="fewer weight or activation bits for this layer, or smaller groups", code="NF-QUANT-018",
    )


def shift_round(value: npt.NDArray[Any], n: int, rounding: Rounding) -> npt.NDArray[Any]:
    """R(value / 2^n) for int64 or object (Python integer) arrays; n <= 0 is an exact left shift."""
    shape = np.shape(value)
    return _shifted(_roomy(np.atleast_1d(value), n), n, rounding).reshape(shape)


def _roomy(value: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """Python integers where int64 could not hold a left shift, or 2^n itself."""
    if value.dtype == object or 0 <= n <= 62 or not value.size:
        return value
    peak = max(abs(int(value.max())), abs(int(value.min())))
    return value.astype(object) if n > 62 or peak << -n >= 2**62 else value.astype(np.int64)


def _shifted(value: npt.NDArray[Any], n: int, rounding: Rounding) -> npt.NDArray[Any]:
    """`shift_round` on at least one dimension, where numpy keeps arrays of Python integers as arrays."""
    if n <= 0:
        return value * (1 << -n)
    low = value & ((1 << n) - 1)
    floor = value >> n
    half = 1 << (n - 1)
    if rounding == "truncate":                     # toward zero
        return floor + ((value < 0) & (low != 0)).astype(np.int64)
    if rounding == "half_up":
        return floor + (low >= half).astype(np.int64)
    if rounding == "half_away":
        return floor + ((low > half) | ((low == half) & (value >= 0))).astype(np.int64)
    return floor + ((low > half) | ((low == half) & ((floor & 1) == 1))).astype(np.int64)


def divide_round(num: npt.NDArray[Any], den: npt.NDArray[Any], rounding: Rounding) -> npt.NDArray[Any]:
    """R(num / den) for exact integers; a zero denominator saturates to the sign of num (0 / 0 is 0)."""
    shape = np.broadcast_shapes(np.shape(num), np.shape(den))
    num, den = (a if a.dtype == object else a.astype(np.int64) for a in np.atleast_1d(num, den))
    safe = np.where(den == 0, 1, den)
    num, safe = np.where(safe < 0, -num, num), np.abs(safe)
    floor = num // safe
    rest = num - floor * safe
    over, tie = rest > safe - rest, rest == safe - rest    # without doubling: no overflow near 2^63
    if rounding == "truncate":
        result = floor + ((num < 0) & (rest != 0)).astype(np.int64)
    elif rounding == "half_up":
        result = floor + (over | tie).astype(np.int64)
    elif rounding == "half_away":
        result = floor + (over | (tie & (num >= 0))).astype(np.int64)
    else:
        result = floor + (over | (tie & (floor % 2 == 1))).astype(np.int64)
    return np.where(den == 0, np.sign(num) * (1 << 40), result).reshape(shape)


def scaled(acc: npt.NDArray[Any], m: npt.ArrayLike) -> npt.NDArray[Any]:
    """acc * m exactly: int64 if it provably fits, else Python integers (object dtype)."""
    multiplier = np.asarray(m, np.int64)
    acc = np.asarray(acc)
    if acc.dtype != object:
        peak = max((abs(int(acc.max())), abs(int(acc.min())))) if acc.size else 0
        if peak * int(np.abs(multiplier).max(initial=0)) < 2**62:
            return acc.astype(np.int64) * multiplier
    return np.asarray(acc.astype(object) * multiplier.astype(object), object)


def requantize(
    acc: npt.NDArray[Any],
    m: npt.ArrayLike,
    n: int,
    zero_point: int,
    lo: npt.ArrayLike,
    hi: npt.ArrayLike,
    rounding: Rounding,
) -> Ints:
    """clamp(R(acc * m / 2^n) + zero_point, lo, hi): one rounding, arrays broadcast against acc."""
    shifted = np.asarray(shift_round(scaled(acc, m), n, rounding) + zero_point)
    low, high = np.asarray(lo, np.int64), np.asarray(hi, np.int64)
    return np.asarray(np.minimum(np.maximum(shifted, low), high)).astype(np.int64)
