"""Weights in groups with float16 scales in the simulator: bytes of memory as whole numbers and floats.
Nothing here comes from hw.grouped, on purpose: a float16 is taken apart by its fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.kernels.floats import floats

Array = npt.NDArray[Any]
Whole = npt.NDArray[np.int64]
OFFSETS = ("none", "zero", "minimum")     # what a group has beside its scale
AT_ONCE = 1 << 22                         # weights that are made numbers of at a time


def groups_of(c: Command) -> int:
    """Groups of a column."""
    return -(-c.number("k") // c.number("group"))


def bytes_of(c: Command) -> int:
    """Of a group: its scale, its zero point or minimum, its codes."""
    codes = c.number("group") * ELEMENTS[c.text("b_type")].bits // 8
    return 2 + OFFSETS.index(c.text("offset")) + codes


@dataclass(frozen=True)
class GroupColumns:
    """Some columns of a weight: codes [.., column, group, term], patterns of float16 and zero points [..,
    column, group]."""

    codes: Whole
    scale: Array
    zero: Whole
    minimum: Array | None

    def fixed(self) -> Whole:
        """In units of 2^-24 [.., column, k]."""
        found = whole(self.scale)[..., None] * (self.codes - self.zero[..., None])
        if self.minimum is not None:
            found = found + whole(self.minimum)[..., None]
        return found.reshape(*found.shape[:-2], -1)

    def numbers(self) -> npt.NDArray[np.float64]:
        """The same as floats."""
        with np.errstate(invalid="ignore"):
            found = floats.real(self.scale, "float16")[..., None] * (self.codes - self.zero[..., None])
            if self.minimum is not None:
                found = found + floats.real(self.minimum, "float16")[..., None]
        return found.reshape(*found.shape[:-2], -1)


def columns(raw: Array, c: Command) -> GroupColumns:
    """The bytes of groups [.., column, group, byte]."""
    row, offset = ELEMENTS[c.text("b_type")], c.text("offset")
    scale = _half(raw[..., :2])
    zero: Array = np.full(scale.shape, c.number("zero") if offset == "none" else 0, np.int64)
    if offset == "zero":
        zero = raw[..., 2].view(np.int8 if row.signed else np.uint8).astype(np.int64)
    minimum = _half(raw[..., 2:4]) if offset == "minimum" else None
    held = np.ascontiguousarray(raw[..., 2 + OFFSETS.index(offset) :])
    if row.bits == 4:
        held = np.stack([held & 15, held >> 4], -1).reshape(*held.shape[:-1], -1)
    codes = held.astype(np.int64)
    if row.signed:
        codes = codes - ((codes >> (row.bits - 1)) << row.bits)
    return GroupColumns(codes, scale, zero, minimum)


def some_columns(raw: Array, c: Command) -> Iterator[tuple[slice, GroupColumns]]:
    """The bytes [column, group, byte], as many columns at a time as memory is meant for."""
    step = max(1, AT_ONCE // max(1, groups_of(c) * c.number("group")))
    for first in range(0, len(raw), step):
        some = slice(first, first + step)
        yield some, columns(raw[some], c)


def _half(raw: Array) -> npt.NDArray[np.uint16]:
    low, high = raw[..., 0].astype(np.uint16), raw[..., 1].astype(np.uint16)
    return np.asarray(low | high << 8, np.uint16)


def whole(patterns: Array) -> Whole:
    """Patterns of float16 in units of 2^-24; infinity and NaN count as 0."""
    bits = patterns.astype(np.int64)
    exponent, fraction = bits >> 10 & 31, bits & 1023
    size = (fraction + np.where(exponent > 0, 1024, 0)) << np.maximum(exponent - 1, 0)
    size = np.where(exponent == 31, 0, size)
    return np.where(bits >> 15 == 1, -size, size)
