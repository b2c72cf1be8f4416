"""Weights in groups of float16 scales read aloud, one number at a time: a scale and a minimum by the
fields of their patterns, codes bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from math import inf, isfinite, nan
from typing import Any

from npuflow.hw.command import Command

BYTES = {"none": 0, "zero": 1, "minimum": 2}


def group_size(f: Mapping[str, Any]) -> int:
    bits = 4 if f["b_type"].endswith("4") else 8
    return 2 + BYTES[f["offset"]] + f["group"] * bits // 8


def half(raw: bytes) -> Fraction | float:
    """What two bytes stand for, the first the lower one."""
    sign, exponent = (-1 if raw[1] & 128 else 1), raw[1] >> 2 & 31
    fraction = Fraction((raw[1] & 3) * 256 + raw[0], 1024)
    if exponent == 31:
        return nan if fraction else sign * inf
    if exponent == 0:
        return sign * fraction / (1 << 14)
    return sign * (1 + fraction) * Fraction(2) ** (exponent - 15)


def parts(f: Mapping[str, Any], raw: bytes, place: int) -> tuple[Fraction | float, int, Fraction | float]:
    """Scale, code less its zero point, minimum of one of a group's weights."""
    scale, data, signed = half(raw[:2]), raw[2 + BYTES[f["offset"]] :], f["b_type"].startswith("int")
    if f["b_type"].endswith("4"):
        code = data[place // 2] >> 4 * (place % 2) & 15
        code -= 16 if signed and code > 7 else 0
    else:
        code = data[place] - (256 if signed and data[place] > 127 else 0)
    zero = f["zero"]
    if f["offset"] == "zero":
        zero = raw[2] - (256 if signed and raw[2] > 127 else 0)
    return scale, code - zero, half(raw[2:4]) if f["offset"] == "minimum" else Fraction(0)


def whole(f: Mapping[str, Any], raw: bytes, place: int) -> int:
    """The weight in units of 2^-24; what is no number counts as 0."""
    scale, code, least = parts(f, raw, place)
    found = (scale if isfinite(scale) else 0) * code + (least if isfinite(least) else 0)
    units = Fraction(found) * (1 << 24)
    assert units.denominator == 1
    return int(units)


def exact(f: Mapping[str, Any], raw: bytes, place: int) -> Fraction | float:
    """The weight before it is rounded to the type of the activations."""
    scale, code, least = parts(f, raw, place)
    if isfinite(scale) and isfinite(least):
        return scale * code + least
    product = scale if not isfinite(scale) else 0.0
    if not isfinite(scale):
        product = nan if code == 0 else scale * (1 if code > 0 else -1)
    other = float(least) if not isfinite(least) else 0.0
    return product + other


class GroupReading:
    """What a scalar reading of commands on integers does with such weights."""

    local: bytearray

    def group_at(self, c: Command, column: int, term: int) -> tuple[bytes, int]:
        """The bytes of the group that a weight is in, and its place there."""
        size, count = group_size(c.fields), -(-c.number("k") // c.number("group"))
        g, place = divmod(term, c.number("group"))
        at = c.number("b") + (column * count + g) * size
        return bytes(self.local[at : at + size]), place

    def groupmatmul(self, c: Command) -> None:
        a, size = self.tensor(c, "a"), (c.number("batch"), c.number("m"), c.number("n"))
        for place, (s, i, j) in enumerate(product(*map(range, size))):
            total = sum(
                (a(s, i, k) - c.number("a_zero")) * whole(c.fields, *self.group_at(c, j, k))
                for k in range(c.number("k"))
            )
            self.accumulate(c, place, total)
