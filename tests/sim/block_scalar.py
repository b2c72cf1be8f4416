"""Block types read aloud, one number at a time, in fractions: what the published definitions say.

BFP16: AMD Quark's documentation (a block of 8 with 8 bits of shared exponent, 8 bits of sign and mantissa).
MX9, MX6: "With Shared Microexponents, A Little Shifting Goes a Long Way" (arXiv 2302.08007), table 2: blocks
of 16, exponents of 8 bits, micro-exponents of one bit for two elements, 7 or 4 bits of mantissa.
MXINT8, MXFP8, MXFP4: OCP Microscaling Formats (MX) Specification 1.0, sections 5 and 6.3.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import copysign, floor, inf, isfinite, nan
from typing import NamedTuple


class Form(NamedTuple):
    size: int
    bits: int
    pair: int = 0
    exponent: int = 0  # bits, of float elements
    least: int = -126
    both: bool = True

    @property
    def shared(self) -> int:
        """Bits before the elements."""
        return 8 + (self.size // self.pair if self.pair else 0)


FORMATS = {
    "bfp16": Form(8, 8),
    "bfp16_16": Form(16, 8),
    "mx9": Form(16, 8, 2),
    "mx6": Form(16, 5, 2),
    "mxint8": Form(32, 8, least=-127),
    "mxfp8": Form(32, 8, exponent=4, least=-127, both=False),
    "mxfp8_e5m2": Form(32, 8, exponent=5, least=-127, both=False),
    "mxfp4": Form(32, 4, exponent=2, least=-127, both=False),
    "mxfp6": Form(32, 6, exponent=2, least=-127, both=False),
    "mxfp6_e3m2": Form(32, 6, exponent=3, least=-127, both=False),
}
LARGEST = {                           # pattern, and its exponent
    "mxfp8": (0x7E, 8), "mxfp8_e5m2": (0x7B, 15), "mxfp4": (0x7, 2), "mxfp6": (0x1F, 2),
    "mxfp6_e3m2": (0x1F, 4),
}


def order(size: Fraction) -> int | None:
    """floor(log2)."""
    if not size:
        return None
    found = 0
    while size >= Fraction(2) ** (found + 1):
        found += 1
    while size < Fraction(2) ** found:
        found -= 1
    return found


def nearest(value: Fraction) -> int:
    whole = floor(value)
    rest = value - whole
    return whole + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2))


def float_element(pattern: int, name: str) -> Fraction | float:
    form = FORMATS[name]
    fraction_bits, bias = form.bits - 1 - form.exponent, (1 << (form.exponent - 1)) - 1
    sign, size = -1 if pattern >> (form.bits - 1) else 1, pattern & ((1 << (form.bits - 1)) - 1)
    field, fraction = size >> fraction_bits, Fraction(size & ((1 << fraction_bits) - 1), 1 << fraction_bits)
    if size > LARGEST[name][0]:
        return sign * inf if name == "mxfp8_e5m2" and not fraction else nan
    value = (1 + fraction) * Fraction(2) ** (field - bias) if field else fraction * Fraction(2) ** (1 - bias)
    return sign * value


@cache
def line(name: str) -> list[Fraction]:
    """All finite float elements from 0 on."""
    return [Fraction(float_element(p, name)) for p in range(LARGEST[name][0] + 1)]


def closest(size: Fraction, name: str) -> int:
    """The pattern nearest to a magnitude, of two the even one."""
    places = line(name)
    at = bisect_left(places, size)
    return min(range(max(at - 1, 0), min(at + 1, len(places))), key=lambda p: (abs(places[p] - size), p % 2))


def read_block(raw: bytes, name: str) -> list[Fraction | float]:
    form, bits = FORMATS[name], int.from_bytes(raw, "little")
    exponent, found = bits & 255, []
    for i in range(form.size):
        code = bits >> (form.shared + i * form.bits) & ((1 << form.bits) - 1)
        if exponent == 255:
            found.append(nan)
            continue
        scale = Fraction(2) ** (exponent - 127)
        if form.exponent:
            one = float_element(code, name)
            found.append(one * scale if isinstance(one, Fraction) else one)
        elif form.pair:
            sign, size = code >> (form.bits - 1), code & ((1 << (form.bits - 1)) - 1)
            micro = bits >> (8 + i // form.pair) & 1
            found.append((-size if sign else size) * scale / Fraction(2) ** (form.bits - 2 + micro))
        else:
            whole = code - (1 << form.bits) if code >> (form.bits - 1) else code
            found.append(whole * scale / Fraction(2) ** (form.bits - 2))
    return found


def encoded_block(values: Sequence[float | Fraction], name: str) -> bytes:
    form = FORMATS[name]
    size = (form.shared + form.size * form.bits) // 8
    if not all(map(isfinite, values)):
        return bytes([255]) + bytes(size - 1)
    exact = [Fraction(v) for v in values]
    top = order(max(map(abs, exact)))
    top = form.least if top is None else top - (LARGEST[name][1] if form.exponent else 0)
    top = max(form.least, min(127, top))
    bits = top + 127
    for i, value in enumerate(exact):
        at = form.shared + i * form.bits
        if form.exponent:
            near = closest(abs(value) / Fraction(2) ** top, name)
            bits |= (near | (copysign(1, values[i]) < 0) << (form.bits - 1)) << at
            continue
        micro = 0
        if form.pair:
            first = i // form.pair * form.pair
            own = order(max(map(abs, exact[first : first + form.pair])))
            micro = int(own is not None and own < top)
            bits |= micro << (8 + i // form.pair)
        whole = nearest(value * Fraction(2) ** (form.bits - 2 + micro - top))
        most = (1 << (form.bits - 1)) - 1
        if form.pair:
            code = min(abs(whole), most) | ((1 << (form.bits - 1)) if whole < 0 else 0)
        else:
            code = max(min(whole, most), -most) & ((1 << form.bits) - 1)
        bits |= code << at
    return bits.to_bytes(size, "little")
