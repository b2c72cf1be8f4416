"""Numbers of 16-bit floats read aloud: fractions, zeros with a sign, infinities and NaN, and every rounding
looks for the nearest pattern."""

from __future__ import annotations

import struct
from bisect import bisect_left
from fractions import Fraction
from functools import cache
from math import ceil, copysign, floor, inf, isfinite, isnan, isqrt, nan

Number = float | Fraction  # a Fraction is finite and not zero; zeros, infinities and NaN are floats
EXPONENTS = {"float16": 5, "bfloat16": 8}
NANS = {"float16": 0x7E00, "bfloat16": 0x7FC0}


def number(value: float) -> Number:
    return Fraction(value) if value and isfinite(value) else value


def decoded(pattern: int, kind: str) -> Number:
    if kind == "bfloat16":
        return number(struct.unpack("<f", struct.pack("<HH", 0, pattern))[0])
    return number(struct.unpack("<e", struct.pack("<H", pattern))[0])


@cache
def line(kind: str) -> list[Fraction]:
    """All numbers from 0 on, and the place of the next one behind them."""
    top = ((1 << EXPONENTS[kind]) - 1) << (15 - EXPONENTS[kind])
    found = [Fraction(decoded(p, kind)) for p in range(top)]
    return [*found, 2 * found[-1] - found[-2]]


def pattern(value: Number, kind: str) -> int:
    if isinstance(value, float):
        if isnan(value):
            return NANS[kind]
        sign = 0x8000 if copysign(1, value) < 0 else 0
        return sign | (len(line(kind)) - 1 if value else 0)
    places, size, sign = line(kind), abs(value), 0x8000 if value < 0 else 0
    at = min(bisect_left(places, size), len(places) - 1)
    if size >= places[at] or size == places[at]:
        return sign | at
    low, high = size - places[at - 1], places[at] - size
    return sign | (at - 1 if low < high or (low == high and at % 2) else at)


def single(value: Number) -> float:
    """The nearest float32."""
    if isinstance(value, float):
        return value
    size, order = abs(value), -126
    while size >= Fraction(2) ** (order + 1):
        order += 1
    unit = Fraction(2) ** (order - 23)
    count = size / unit
    whole = floor(count)
    rest = count - whole
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2)
    found = inf if whole * unit >= 2**128 else float(whole * unit)
    return -found if value < 0 else found


def added(a: Number, b: Number) -> Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a + b or 0.0
    if isinstance(a, float) and isinstance(b, float):
        return a + b
    special = a if isinstance(a, float) else b
    return special if special else (b if special is a else a)


def times(a: Number, b: Number) -> Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    small = [copysign(1.0, v) if isinstance(v, Fraction) else v for v in (a, b)]
    return small[0] * small[1]


def over(a: Number, b: Number) -> Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a / b
    x, y = (copysign(1.0, v) if isinstance(v, Fraction) else v for v in (a, b))
    if isnan(x) or isnan(y) or (x == 0 and y == 0) or (abs(x) == abs(y) == inf):
        return nan
    return copysign(inf if y == 0 else x, copysign(1.0, x) * copysign(1.0, y)) if y == 0 else x / y


def alone(x: Number, op: str) -> Number:
    """A function of one number."""
    if op in ("square", "reciprocal"):
        return times(x, x) if op == "square" else over(Fraction(1), x)
    if op in ("neg", "abs"):
        return -x if op == "neg" or copysign(1, x) < 0 else x
    if op == "sqrt":
        return root(x)
    if isinstance(x, float):
        return x
    whole = {"floor": floor, "ceil": ceil, "round": round}[op](x)
    return Fraction(whole) if whole else copysign(0.0, x)


def root(x: Number) -> Number:
    """The square root, where it is no fraction one of 64 bits and a last bit that is set."""
    if isinstance(x, float):
        return nan if x == -inf else x
    if x < 0:
        return nan
    scaled = x * Fraction(4) ** 300  # 16-bit floats are at least 2^-133
    whole = isqrt(floor(scaled))
    return Fraction(2 * whole + (whole * whole != scaled)) / Fraction(2) ** 301


def total(terms: list[Number], chunk: int, start: float) -> float:
    found = start
    for k in range(0, len(terms), chunk):
        exact: Number = 0.0
        for term in terms[k : k + chunk]:
            exact = added(exact, term) if term or isnan(term) else exact
        found = single(added(number(found), number(single(exact))))
    return found
