"""What the kernels of convolutions share: how windows lie, and operands as bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuflow.hw.command import Command
from npuflow.ir.types import Array
from npuflow.whole.execute import tables
from npuflow.whole.execute.bench import TensorBench

AT_ONCE = 1 << 22  # weights that are made 64 bits wide at a time


@dataclass(frozen=True)
class Windows:
    """A convolution of B * n images: extents, places of the output, and how the windows lie."""

    dims: tuple[int, ...]
    out: int
    size: tuple[int, int]
    groups: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    origin: tuple[int, int]

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns that the windows cover."""
        high, wide = (
            (self.size[d] - 1) * self.stride[d] + (self.kernel[d] - 1) * self.dilation[d] + 1 for d in (0, 1)
        )
        return high, wide

    @property
    def inside(self) -> bool:
        """Whether no window leaves the image."""
        return all(
            self.origin[d] >= 0 and self.origin[d] + self.reach[d] <= self.dims[2 + d] for d in (0, 1)
        )


def windows(c: Command) -> Windows | None:
    """The windows of a CONV that starts its sums."""
    if c.vector("insert") != (1, 1) or c.number("accumulate") or 0 in c.vector("x_dims"):
        return None
    names = ("kernel", "stride", "dilation", "origin")
    kernel, stride, dilation, origin = ((c.vector(n)[0], c.vector(n)[1]) for n in names)
    size = c.number("out_height"), c.number("out_width")
    out, groups = c.number("out_channels"), c.number("groups")
    return Windows(c.vector("x_dims"), out, size, groups, kernel, stride, dilation, origin)


@dataclass(frozen=True)
class Factors:
    """Weights without their zero points, [out, terms], as bytes; of x the zero point as an unsigned byte, and
    the bits that make its codes unsigned; by channel the largest sum."""

    weights: Array
    zero: int
    flip: int
    peaks: tables.Whole

    @property
    def correction(self) -> tables.Whole:
        """What the zero point of x adds to every sum."""
        return -self.zero * self.weights.sum(1, dtype=np.int64)


def factors(
    bench: TensorBench, c: Command, x: str, w: str, weights: Array, out: int, zeros_axis: int = 0
) -> Factors | None:
    """Both operands of a command, if bytes hold them; `weights` are [out, terms]."""
    codes = tables.byte_range(c.text(f"{x}_type"))
    zeros = np.full(out, c.number(f"{w}_zero"), np.int64)
    if c.pointer(f"{w}_zeros") is not None:
        known = bench.constant(0, c, f"{w}_zeros", "int32", out)
        if known is None:
            return None
        zeros = known.astype(np.int64)
    zero = c.number(f"{x}_zero")
    if codes is None or not weights.size or not codes[0] <= zero <= codes[1]:
        return None
    spread, step = max(zero - codes[0], codes[1] - zero), max(1, AT_ONCE // weights.shape[1])
    found, peaks = np.empty(weights.shape, np.int8), np.empty(len(weights), np.int64)
    for at in range(0, len(weights), step):
        centred = weights[at : at + step].astype(np.int64) - zeros[at : at + step, None]
        if centred.min() < -128 or centred.max() > 127:
            return None
        found[at : at + step] = centred
        peaks[at : at + step] = np.abs(centred).sum(1) * spread
    return Factors(found, zero - codes[0], 0x80 if codes[0] else 0, peaks)


def places(s: Windows, row: int, column: int) -> Array:
    """Where the windows of all places begin."""
    rows, columns = np.arange(s.size[0]) * (s.stride[0] * row), np.arange(s.size[1]) * (s.stride[1] * column)
    return np.add.outer(rows, columns).reshape(-1)


def taps(s: Windows, row: int, column: int) -> Array:
    """Where every tap lies in a window."""
    rows, columns = np.arange(s.kernel[0]) * s.dilation[0], np.arange(s.kernel[1]) * s.dilation[1]
    return np.add.outer(rows * row, columns * column).reshape(-1)
