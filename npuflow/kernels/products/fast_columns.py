"""Lays out a convolution's columns: a copy for 1x1, a padded copy, or a kernel for the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.command import Command
from npuflow.hw.region import dense
from npuflow.kernels.operands import Bench, FlatOperand, walk
from npuflow.kernels.products import windows as w

Array = npt.NDArray[Any]
Step = Callable[[], None]


def filler(bench: Bench, c: Command, x: FlatOperand, out: Array, first: int, half: Any) -> Step:
    """Fills `out` [rows, C * kh * kw, oh * ow] for samples first.. of the B * n in the
    tile, whenever it is called."""
    dims, size = c.vector("x_dims"), (c.number("out_height"), c.number("out_width"))
    shape = tuple(c.vector(name) for name in ("kernel", "stride", "dilation", "origin", "insert"))
    kernel, stride, dilation, origin, insert = shape
    whole = len(out) % dims[0] == 0 and first % dims[0] == 0          # whole samples of the batch
    start, count = first // dims[0], len(out) // dims[0]
    at = x.base + start * x.sample
    # places as they lie
    plain = kernel == stride == insert == (1, 1) and origin == (0, 0) and size == dims[2:]
    if plain and whole and x.flat.itemsize == 2:
        n, (xo, to), steps, _ = walk((count, *dims), ((x.sample, *x.strides), dense((count, *dims), 1)))
        if steps[0] == 1:
            return partial(w.half_rows, x.flat, xo + at, n, half.shift == 8, half.add, out.reshape(-1), to)
    item = x.flat.itemsize
    if insert != (1, 1) or item > 2 or not whole:
        where = (*x.parts, dims, *shape, size)
        return partial(w.columns, *where, out, first, half.shift, half.add, half.zero)
    # the low or the high byte of every element
    steps = tuple(step * item for step in (x.sample, *x.strides))
    source = np.ndarray((count, *dims), np.uint8, x.flat.view(np.uint8), at * item + half.shift // 8, steps)
    add = np.uint8(half.add)
    if plain:
        return partial(np.add, source, add, out.reshape(count, *dims))
    extent = [(size[d] - 1) * stride[d] + (kernel[d] - 1) * dilation[d] + 1 for d in (0, 1)]
    padded = bench.scratch("padded", "uint8", (count, *dims[:2], *extent))
    inside, taken = [], []
    for d in (0, 1):
        lo, hi = max(0, origin[d]), min(dims[2 + d], origin[d] + extent[d])
        taken.append(slice(lo, max(lo, hi)))
        inside.append(slice(lo - origin[d], max(lo, hi) - origin[d]))
    s = padded.strides
    steps = (s[0], s[1], s[2], s[3] * dilation[0], s[4] * dilation[1], s[3] * stride[0], s[4] * stride[1])
    view = np.lib.stride_tricks.as_strided(padded, (count, *dims[:2], *kernel, *size), steps, writeable=False)
    assert prod(view.shape) == out.size
    hollow = any(i.start > 0 or i.stop < e for i, e in zip(inside, extent, strict=True))
    inner, outer = padded[..., inside[0], inside[1]], source[..., taken[0], taken[1]]
    return _Padded(padded, half.zero if hollow else None, inner, outer, add, out.reshape(view.shape), view)


class _Padded:
    """Pad with the zero point, then copy every window."""

    def __init__(
        self, padded: Array, zero: int | None, inner: Array, source: Array, add: Any, out: Array, view: Array
    ) -> None:
        self.padded, self.zero, self.inner, self.source, self.add = padded, zero, inner, source, add
        self.out, self.view = out, view

    def __call__(self) -> None:
        if self.zero is not None:
            self.padded.fill(self.zero)
        np.add(self.source, self.add, self.inner)
        np.copyto(self.out, self.view)
