"""Weights in groups with a float16 scale each: numbers, codes, and bytes in memory.

A matrix has a row of codes for every output channel. So many consecutive codes of a row are a group: it
has a scale, and maybe a zero point or a minimum. A code q stands for scale * (q - zero), or scale * q +
minimum. All of these are exact in float64: a float16 is a whole number of 2^-24. The simulator has
arithmetic of its own, on purpose.

In memory a group is its scale, its zero point (a byte) or minimum (a float16) if it has one, then its
codes bit by bit, the first in the lowest bits of the first byte. The last group of a row is padded with
codes of 0.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from npuflow.base.tables import Config, Range
from npuflow.hw.elements import container

Array = npt.NDArray[Any]
Real = npt.NDArray[np.float64]
Offset = Literal["none", "zero", "minimum"]
OFFSETS: tuple[Offset, ...] = ("none", "zero", "minimum")     # in the order of their numbers in commands

FRACTION = 24                             # a float16 is a whole number of 2^-24
AT_ONCE = 1 << 22                         # codes that are looked at together


@dataclass(frozen=True, eq=False)
class WeightGroups:
    """What codes [rows, terms] of groups of `size` terms stand for. `scales`, and where there are several
    `zeros` or `minima`: [rows, groups]. `zero`: the zero point of all groups where these have none of
    their own.
    """

    bits: int
    signed: bool
    size: int
    scales: Array
    zero: int = 0
    zeros: Array | None = None
    minima: Array | None = None

    @property
    def offset(self) -> Offset:
        """What a group has beside its scale."""
        return "zero" if self.zeros is not None else "minimum" if self.minima is not None else "none"

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest code."""
        half = 1 << (self.bits - 1)
        return (-half, half - 1) if self.signed else (0, 2 * half - 1)

    @property
    def bytes(self) -> int:
        """Of a group in memory."""
        return group_bytes(self.bits, self.size, self.offset)

    @cached_property
    def exact(self) -> bool:
        """Whether all scales and minima are finite numbers of float16."""
        held = (one for one in (self.scales, self.minima) if one is not None)
        return all(bool(np.isfinite(one).all()) and in_half(one) for one in held)

    def in_halves(self) -> Self:
        """The same with scales and minima rounded to float16."""
        minima = None if self.minima is None else self.minima.astype(np.float16)
        with np.errstate(over="ignore"):
            return replace(self, scales=self.scales.astype(np.float16), minima=minima)

    def parts(self, terms: int) -> Iterator[tuple[slice, Real, Array]]:
        """Rows, a part of all at a time, with the scale and the offset of every term: what is added to
        scale * code if groups have minima, else what is taken off the code."""
        step, at = max(1, AT_ONCE // max(1, terms)), np.arange(terms) // self.size
        for first in range(0, len(self.scales), step):
            some = slice(first, first + step)
            scale = self.scales[some].astype(np.float64)[:, at]
            if self.minima is not None:
                yield some, scale, self.minima[some].astype(np.float64)[:, at]
            elif self.zeros is not None:
                yield some, scale, self.zeros[some].astype(np.int64)[:, at]
            else:
                yield some, scale, np.full((1, 1), self.zero, np.int64)

    def numbers(self, codes: Array) -> Real:
        """What codes [rows, terms] stand for."""
        found = np.empty(codes.shape, np.float64)
        for some, scale, offset in self.parts(codes.shape[1]):
            if self.minima is not None:
                found[some] = scale * codes[some] + offset
            else:
                found[some] = scale * (codes[some].astype(np.int64) - offset)
        return found

    def nearest(self, real: Array) -> Array:
        """The codes nearest to numbers [rows, terms]; where a scale is 0, the zero point, or 0 beside a
        minimum."""
        found, (lo, hi) = np.empty(real.shape, container(self.bits, self.signed)), self.ends
        for some, scale, offset in self.parts(real.shape[1]):
            value = real[some].astype(np.float64)
            moved = value - offset if self.minima is not None else value
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(scale == 0, 0.0, moved / scale)
            ratio = np.nan_to_num(np.rint(ratio), nan=0.0, posinf=1e9, neginf=-1e9)
            found[some] = np.clip(ratio if self.minima is not None else ratio + offset, lo, hi)
        return found

    def fixed(self, codes: Array) -> Array:
        """The same in units of 2^-24, int64: exact with scales and minima of float16."""
        return np.rint(np.ldexp(self.numbers(codes), FRACTION)).astype(np.int64)

    def packed(self, codes: Array) -> npt.NDArray[np.uint8]:
        """[rows, groups, bytes]"""
        rows, terms = codes.shape
        count = self.scales.shape[1]
        short = count * self.size - terms
        whole = np.pad(codes.astype(np.int16), ((0, 0), (0, short))) & ((1 << self.bits) - 1)
        parts: list[Array] = [self.scales.astype("<f2").view(np.uint8).reshape(rows, count, 2)]
        if self.zeros is not None:
            parts.append(self.zeros.astype(np.int16)[..., None] & 255)
        if self.minima is not None:
            parts.append(self.minima.astype("<f2").view(np.uint8).reshape(rows, count, 2))
        each = 8 // self.bits
        planes = whole.astype(np.uint8).reshape(rows, count, self.size // each, each)
        held = np.zeros(planes.shape[:-1], np.uint8)
        for i in range(each):
            held |= planes[..., i] << (i * self.bits)
        return np.ascontiguousarray(np.concatenate([*parts, held], -1), np.uint8)


def group_bytes(bits: int, size: int, offset: Offset) -> int:
    """Of a group in memory."""
    return 2 + {"none": 0, "zero": 1, "minimum": 2}[offset] + size * bits // 8


def in_half(numbers: Array) -> bool:
    """Whether numbers are numbers of float16."""
    with np.errstate(over="ignore"):
        return bool(np.array_equal(numbers.astype(np.float16).astype(numbers.dtype), numbers, equal_nan=True))


def as_text(array: Array) -> str:
    """Numbers as text: the letter of their type, and their bytes in base 64. Floats that float16 has are
    of that type, others of float32."""
    if array.dtype.kind == "f":
        array = array.astype("<f2" if in_half(array) else "<f4")
    return array.dtype.char + base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def of_text(text: str, rows: int) -> Array:
    """The numbers of a text, [rows, groups]."""
    kind = np.dtype(text[0]).newbyteorder("<")
    return np.frombuffer(base64.b64decode(text[1:]), kind).reshape(rows, -1)


# --- products with such weights, as a target has them


@dataclass(frozen=True)
class GroupProduct(Config):
    """A product of matrices with weights in groups, which the array turns into numbers as it loads them:
    codes with a float16 scale a group, and maybe a zero point or a minimum. Sums over int16 have 64 bits,
    those over floats are added by the chunk rule."""

    activations: Literal["int16", "bfloat16", "float16"]
    weights: Annotated[tuple[Literal[4, 8], ...], Range(4, 8)] = (4, 8)       # bits of a code
    groups: tuple[Literal[32, 64, 128], ...] = (32, 64, 128)    # consecutive input channels of a group


def bits_beside(products: Sequence[GroupProduct], activations: str, bits: int, group: int) -> int:
    """Bits that codes of so many have in a product with groups of that size, beside activations of a type;
    0: there is no such product."""
    found = [
        width for one in products for width in one.weights
        if one.activations == activations and group in one.groups and bits <= width
    ]
    return min(found, default=0)
