"""Floats of any width as bit patterns, and exact sums of their products.
Every rounding of the compiler to a float type is here; the simulator alone has arithmetic of its own, on
purpose.

A pattern is an unsigned integer: sign, exponent, fraction, as IEEE 754 has them. Rounding is to the nearest,
ties to even; a value beyond the largest finite one becomes infinity; subnormal numbers are kept; every NaN
that is made is the quiet one without a sign (`nan`).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.elements import ELEMENTS

Patterns = npt.NDArray[Any]
Real = npt.NDArray[np.float64]
Sums = npt.NDArray[np.float32]
AT_ONCE = 1 << 18  # numbers that become patterns, or were: few enough for the processor's caches


def least_exponent(name: str) -> int:
    """Of the smallest normal number."""
    return 2 - (1 << (ELEMENTS[name].exponent - 1))


def infinity(name: str) -> int:
    """The pattern of plus infinity."""
    row = ELEMENTS[name]
    return ((1 << row.exponent) - 1) << row.fraction


def nan(name: str) -> int:
    """The pattern of every NaN that is made."""
    return infinity(name) | 1 << (ELEMENTS[name].fraction - 1)


def largest(name: str) -> float:
    """The largest finite number."""
    return float(decoded(infinity(name) - 1, name))


def sign_bit(name: str) -> int:
    return 1 << (ELEMENTS[name].bits - 1)


def encoded(real: npt.ArrayLike, name: str) -> Patterns:
    """The nearest number of a float type, as a pattern: one rounding from float64."""
    value = np.asarray(real, np.float64)
    row, lowest = ELEMENTS[name], least_exponent(name)
    size = np.where(np.isfinite(value), np.abs(value), 0.0)
    order = np.where(size > 0, np.maximum(np.frexp(size)[1] - 1, lowest), lowest)
    # at most 2^(fraction + 1), exact: a power of two times a float64 that does not leave its range
    significand = np.rint(np.ldexp(size, row.fraction - order)).astype(np.int64)
    pattern = ((order - lowest).astype(np.int64) << row.fraction) + significand
    pattern = np.where(np.isinf(value), infinity(name), np.minimum(pattern, infinity(name)))
    pattern = np.where(np.isnan(value), nan(name), pattern | np.where(np.signbit(value), sign_bit(name), 0))
    return np.asarray(pattern.astype(f"uint{row.container}"))


def decoded(patterns: npt.ArrayLike, name: str) -> Real:
    """What patterns of a float type stand for."""
    bits = np.asarray(patterns).astype(np.int64)
    row, top = ELEMENTS[name], infinity(name)
    size = bits & (sign_bit(name) - 1)
    exponent, fraction = size >> row.fraction, size & ((1 << row.fraction) - 1)
    significand = fraction + np.where(exponent > 0, 1 << row.fraction, 0)
    shift = np.maximum(exponent, 1) - 1 + least_exponent(name) - row.fraction
    value = np.ldexp(significand.astype(np.float64), shift.astype(np.int32))
    value = np.where(size == top, np.inf, np.where(size > top, np.nan, value))
    return np.asarray(np.where(bits & sign_bit(name), -value, value), np.float64)


def rounded(real: npt.ArrayLike, name: str) -> Real:
    """The nearest numbers of a float type."""
    return in_pieces(lambda some: decoded(encoded(some, name), name), np.asarray(real), "float64")


def in_pieces(function: Callable[[Patterns], Patterns], array: Patterns, dtype: str) -> Patterns:
    """A function of single numbers, of some at a time: each takes some 50 bytes meanwhile."""
    if array.size <= AT_ONCE:
        return np.asarray(function(array), dtype)
    flat, made = array.reshape(-1), np.empty(array.size, dtype)
    for start in range(0, array.size, AT_ONCE):
        made[start : start + AT_ONCE] = function(flat[start : start + AT_ONCE])
    return made.reshape(array.shape)


def clamped(patterns: Patterns, low: npt.ArrayLike, high: npt.ArrayLike, name: str) -> Patterns:
    """low where a number is below it, high where it is above, else the number as it is: NaN stays NaN, and
    a zero keeps its sign. Bounds are patterns."""
    value = decoded(patterns, name)
    lower, upper = np.asarray(low, patterns.dtype), np.asarray(high, patterns.dtype)
    kept = np.where(value < decoded(lower, name), lower, patterns)
    return np.asarray(np.where(value > decoded(upper, name), upper, kept))


def products(weight: Real, columns: Real, chunk: int, start: npt.ArrayLike = 0.0) -> Sums:
    """start + weight [.., n, k] @ columns [.., k, m] by the rule of floats: within `chunk` consecutive terms
    the sum is exact and rounded once to float32, and these are added in float32 one after the other, the
    first to `start`."""
    shape = np.broadcast_shapes(weight.shape[:-2], columns.shape[:-2])
    total = np.zeros((*shape, weight.shape[-2], columns.shape[-1]), np.float32)
    total += np.asarray(start, np.float32)
    with np.errstate(all="ignore"):
        for k in range(0, weight.shape[-1], chunk):
            total += _exact(weight[..., k : k + chunk], columns[..., k : k + chunk, :])
    return total


def sums(terms: Real, chunk: int, start: npt.ArrayLike = 0.0) -> Sums:
    """The same of plain terms along the last dimension: each is a product with 1."""
    ones = np.ones((1, terms.shape[-1]))
    return np.asarray(products(ones, terms[..., None], chunk, np.asarray(start)[..., None, None])[..., 0, 0])


def _exact(weight: Real, columns: Real) -> Sums:
    """float32(weight @ columns), rounded once from the exact sum.

    Products of two 16-bit floats, and of a float32 with 1, are exact in float64. A float64 sum of n terms
    is at most 2 n 2^-53 times the sum of magnitudes off: where both ends of that interval round to the same
    float32, that is the answer. Else it is where no partial sum can lose a bit, in whatever order it was
    taken. What is left is summed in fractions.
    """
    found = weight @ columns
    slack = (np.abs(weight) @ np.abs(columns)) * (2.0 * weight.shape[-1] * 2.0**-53)
    result = found.astype(np.float32)
    doubtful = np.isfinite(found) & ((found - slack).astype(np.float32) != (found + slack).astype(np.float32))
    if doubtful.any():
        *at, i, j = np.nonzero(doubtful)
        shape = np.broadcast_shapes(weight.shape[:-2], columns.shape[:-2])
        rows = np.broadcast_to(weight, (*shape, *weight.shape[-2:]))[(*at, i)]
        cols = np.swapaxes(np.broadcast_to(columns, (*shape, *columns.shape[-2:])), -1, -2)[(*at, j)]
        terms = rows * cols
        for k in np.flatnonzero(~_lossless(terms)):
            exact = sum(map(Fraction, terms[k].tolist()), Fraction(0))
            result[(*(axis[k] for axis in at), i[k], j[k])] = nearest(exact)
    return result + np.float32(0.0)                        # a zero is +0


def _lossless(terms: Real) -> npt.NDArray[np.bool_]:
    """Rows whose sum is exact in float64 in any order: all terms are multiples of a unit of which no partial
    sum has 2^53."""
    fraction, order = np.frexp(terms)
    digits = np.ldexp(fraction, 53).astype(np.int64)
    lowest = np.where(digits == 0, np.inf, np.ldexp((digits & -digits).astype(np.float64), order - 53))
    return np.asarray(np.abs(terms).sum(-1) < lowest.min(-1) * 2.0**52)


def nearest(exact: Fraction) -> np.float32:
    """The float32 nearest to a fraction, ties to even."""
    if not exact:
        return np.float32(0.0)
    size, row, lowest = abs(exact), ELEMENTS["float32"], least_exponent("float32")
    order = size.numerator.bit_length() - size.denominator.bit_length()
    order -= int(size < Fraction(2) ** order)
    unit = Fraction(2) ** (max(order, lowest) - row.fraction)
    with np.errstate(over="ignore"):
        value = np.float32(np.float64(round(size / unit)) * float(unit))
    return np.float32(-value if exact < 0 else value)
