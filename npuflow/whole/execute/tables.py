"""What a fused kernel needs to know of a requantisation, by output channel, laid out for vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.ir.types import Array
from npuflow.whole.execute.bench import TensorBench

Whole = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ending:
    """A REQUANT with constant parameters: all of it by channel but shift, zero point and rounding."""

    bias: Whole
    multiplier: Whole
    lo: Whole
    hi: Whole
    shift: int
    zero: int
    rounding: str


def ending(bench: TensorBench, c: Command, channels: int) -> Ending | None:
    """The command's parameters; None where they are no constants."""

    def found(name: str, dtype: str, otherwise: int) -> Whole | None:
        if c.pointer(name) is None:
            return np.full(channels, otherwise, np.int64)
        known = bench.constant(0, c, name, dtype, channels)
        return None if known is None else known.astype(np.int64)

    bias, m = found("bias", c.text("bias_type"), 0), found("multipliers", "uint32", c.number("multiplier"))
    lo, hi = found("los", "int32", c.number("lo")), found("his", "int32", c.number("hi"))
    if bias is None or m is None or lo is None or hi is None:
        return None
    if bias.size and int(np.abs(bias).max()) << c.number("bias_shift") >= 1 << 40:
        return None
    shifted = bias << c.number("bias_shift")
    return Ending(shifted, m, lo, hi, c.number("shift"), c.number("zero"), c.text("rounding"))


def flags(end: Ending, flip: int) -> Whole | None:
    """The numbers that `dot._Codes` reads, and the sign bits to turn; None for left shifts."""
    if not 0 <= end.shift < 62:
        return None
    half = (1 << end.shift) >> 1
    added, last, negative = {
        "half_up": (half, 0, 0), "half_even": (half - 1, 1, 0), "half_away": (half, 0, -1),
        "truncate": (0, 0, (1 << end.shift) - 1),
    }[end.rounding] if end.shift else (0, 0, 0)
    usual = end.rounding == "half_up" or not end.shift
    return np.array([end.shift, end.zero, 0 if usual else 1, added, last, negative, flip, 0], np.int64)


def fits(end: Ending, peaks: Whole) -> bool:
    """Whether sums up to `peaks` with their bias, and their codes, stay in 32 bits, and products in 62."""
    totals = [int(p) + int(b) for p, b in zip(peaks, np.abs(end.bias), strict=True)]
    product = max(t * int(m) for t, m in zip(totals, end.multiplier, strict=True))
    small = max(totals) < 1 << 31 and int(end.multiplier.max()) < 1 << 32
    return small and product < 1 << 62 and (product >> max(end.shift, 0)) + 1 < 1 << 30


def laid(end: Ending, correction: Whole, lanes: Array) -> tuple[Array, Array]:
    """The tables of 32 and of 64 bits. `lanes` [vectors, lanes]: the channel of every lane, -1 for none;
    `correction` is what zero points add to every sum."""
    at = np.maximum(lanes, 0)
    there = lanes >= 0
    bias = end.bias + correction + (1 << 31)
    m = np.where(there, end.multiplier[at], 0)
    rows = [np.where(there, bias[at], 0), m, np.where(there, end.lo[at] - end.zero, 0),
            np.where(there, end.hi[at] - end.zero, 0)]
    narrow = np.stack(rows, 1).astype(np.uint64).astype(np.uint32).view(np.int32)
    base = -(m << 31)
    wide = np.concatenate([base[:, 0::2], base[:, 1::2]], 1)
    return np.ascontiguousarray(narrow).reshape(-1), np.ascontiguousarray(wide).reshape(-1)


def byte_range(dtype: str) -> tuple[int, int] | None:
    """The codes of a type of one byte."""
    kind = ELEMENTS[dtype]
    return kind.range if kind.bytes == 1 else None
