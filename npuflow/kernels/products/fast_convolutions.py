"""Binds convolutions of bytes to the kernels of `pairs`.
Weights and taps are laid out once, tiles chosen to fit the caches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.kernels.operands import Bench, FlatOperand
from npuflow.kernels.products import pairs
from npuflow.kernels.products.pair_planes import BLOCK

Array = npt.NDArray[Any]
Step = Callable[[], None]
Scratch = Callable[[str, str, tuple[int, ...]], Array]
# bytes of a sample's planes and of the sums under way that caches hold
PLANES, SUMS = 1 << 19, 1 << 19
TOGETHER = 1 << 15               # of channels that a depthwise convolution treats together
LIMIT = 1 << 15


@dataclass(frozen=True)
class _Shape:
    """Where the windows of a convolution lie, as simple as it can be said: `skip` elements
    lie before the tile's first."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    skip: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    origin: tuple[int, int]

    @property
    def deep(self) -> tuple[int, int]:
        """Rows and columns of one phase of a padded plane."""
        reach = [self.size[d] + (self.kernel[d] - 1) * self.dilation[d] // self.stride[d] for d in (0, 1)]
        return reach[0], reach[1]

    @property
    def plane(self) -> int:
        return prod(self.stride) * prod(self.deep)

    def taps(self) -> list[int]:
        """Where each tap's run starts in a plane, in the order of the kernel."""
        deep, wide = self.deep
        found = []
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                r, c = i * self.dilation[0], j * self.dilation[1]
                phase = r % self.stride[0] * self.stride[1] + c % self.stride[1]
                found.append((phase * deep + r // self.stride[0]) * wide + c // self.stride[1])
        return found


def convolution(bench: Bench, i: int, c: Command, weights: Array, zeros: Array, peak: int) -> Step | None:
    """The command on 16-bit pairs, or None where it is not made of bytes or its sums may leave
    32 bits before they may wrap."""
    types = c.text("x_type"), c.text("w_type")
    wide = c.text("acc_type") != "int32" and peak >= 1 << 31
    if (
        max(ELEMENTS[t].bytes for t in types) > 1
        or c.vector("insert") != (1, 1)
        or wide
        or min(c.vector("x_dims")) == 0
    ):
        return None
    centred = (
        weights.reshape(c.number("out_channels"), -1, prod(c.vector("kernel"))).astype(np.int64)
        - zeros[:, None, None]
    )
    if np.abs(centred).max() >= LIMIT or abs(c.number("x_zero")) + 255 >= LIMIT or not trusted():
        return None
    x = bench.operand(i, c, "x")
    shape = simple(c, x)
    count = shape.dims[0] * c.number("out_channels") * prod(shape.size)
    flat, starts = bench.sum(i, c, count)
    offsets = np.concatenate([s + np.arange(shape.dims[0]) * (count // shape.dims[0]) for s in starts])
    flip = 128 if c.text("x_type") == "int8" else 0
    source = (
        x.flat.view(np.uint8),
        x.base + shape.skip,
        x.sample,
        shape.strides,
        shape.dims,
        flip,
        c.number("x_zero"),
    )
    end = (flat, offsets, bool(c.number("accumulate")))
    bind = _depthwise if centred.shape[1] == 1 and c.number("groups") > 1 else _dense
    return bind(bench.scratch, shape, centred.astype(np.int16), c.number("groups"), source, end)


def simple(c: Command, x: FlatOperand) -> _Shape:
    """Strides of one-tap axes become those of the tile; what then reads the tile as
    it lies becomes one long row."""
    dims, strides, skip = list(c.vector("x_dims")), list(x.strides), 0
    size, kernel, stride, dilation, origin = (
        list(v)
        for v in (
            (c.number("out_height"), c.number("out_width")), c.vector("kernel"), c.vector("stride"),
            c.vector("dilation"), c.vector("origin"),
        )
    )
    for d in (0, 1):
        if kernel[d] == 1:
            late = max(0, -(origin[d] // stride[d]))                 # outputs before the tile's first row
            start = late * stride[d] + origin[d]
            skip += start * strides[2 + d]
            dims[2 + d] = max(0, -((start - dims[2 + d]) // stride[d]))
            strides[2 + d] *= stride[d]
            stride[d], origin[d], dilation[d] = 1, -late, 1
    if kernel == [1, 1] and origin == [0, 0] and size == dims[2:] and strides[2] == size[1] * strides[3]:
        size = dims[2:] = [1, prod(size)]
    pair = [(v[0], v[1]) for v in (size, kernel, stride, dilation, origin)]
    return _Shape(tuple(dims), tuple(strides), skip, *pair)


def _dense(
    scratch: Scratch, s: _Shape, weights: Array, groups: int, source: tuple[Any, ...], end: tuple[Any, ...]
) -> Step:
    outs, per, taps = len(weights) // groups, weights.shape[1], weights.shape[2]
    halves = (per + 1) // 2
    together, size = 1, s.size
    # planes that are the outputs' places, no more: samples side by side, each as one long row
    if s.kernel == (1, 1) and s.deep == s.size:
        room = min(PLANES // (4 * halves * s.plane), SUMS // (4 * outs * s.plane))
        together = max(1, min(len(end[1]), room))
        size = (1, s.plane) if together > 1 else s.size
    base = np.add.outer(np.arange(halves) * together * s.plane, np.array(s.taps())).reshape(-1)
    padded = np.zeros((len(weights), 2 * halves, taps), np.int16)
    padded[:, :per] = weights
    words = (
        padded.reshape(groups, outs, halves, 2, taps)
        .transpose(0, 1, 2, 4, 3)
        .reshape(groups, outs, len(base), 2)
    )
    rows, a = _blocks(np.ascontiguousarray(words).view(np.int32)[..., 0])
    chunk, run = (1, together * s.plane) if together > 1 else _chunk(s, outs)
    pitch = _up(run, pairs.WIDE)
    planes = scratch("planes", "int16", (2 * (halves * together * s.plane + pitch + BLOCK),))
    lines = scratch("lines", "int16", (2, s.plane + BLOCK))
    panel = scratch("panel", "int32", (pairs.DEEP * pairs.WIDE,))
    out = scratch("tiles", "int32", (outs * pitch,))
    steps = np.arange(pairs.DEEP) * pairs.WIDE
    geometry = (s.stride, s.origin, *s.deep, size, together, chunk)
    tables = (a, rows, base)
    space = (planes, planes.view(np.int32), lines, panel, steps, out, pitch)
    return partial(pairs.dense, *source, groups, *geometry, *tables, *space, *end)


def _blocks(words: Array) -> tuple[Array, Array]:
    """Weights [groups, outputs, K] by tiles of rows, and the table of tiles: first row,
    rows, where its weights start."""
    groups, outs, count = words.shape
    table, parts, at = [], [], 0
    while at < outs:
        size = next(t for t in pairs.TILES if t <= outs - at)
        table.append((at, size, at * count))
        parts.append(words[:, at : at + size].transpose(0, 2, 1).reshape(groups, -1))
        at += size
    return np.array(table, np.int64), np.ascontiguousarray(np.concatenate(parts, 1)).reshape(-1)


def _chunk(s: _Shape, outs: int) -> tuple[int, int]:
    """Output rows to finish at a time, and their places: the fewest tiles whose sums fit the cache."""
    (height, width), wide = s.size, s.deep[1]

    def tiles(rows: int) -> int:
        whole, rest = divmod(height, rows)
        lengths = [(r - 1) * wide + width for r in (rows, rest) if r]
        return whole * _up(lengths[0], pairs.WIDE) + (_up(lengths[1], pairs.WIDE) if rest else 0)

    fits = [r for r in range(1, height + 1) if 4 * outs * _up(r * wide, pairs.WIDE) <= SUMS] or [1]
    best = min(fits, key=lambda r: (tiles(r), -r))
    return best, (best - 1) * wide + width


def _depthwise(
    scratch: Scratch, s: _Shape, weights: Array, groups: int, source: tuple[Any, ...], end: tuple[Any, ...]
) -> Step:
    found = _neighbours(s)
    base = np.array([at for at, _, _ in found])
    words = np.zeros((len(weights), len(found), 2), np.int16)
    for k, (_, one, two) in enumerate(found):
        words[:, k, 0] = weights[:, 0, one]
        if two is not None:
            words[:, k, 1] = weights[:, 0, two]
    run = _up((s.size[0] - 1) * s.deep[1] + s.size[1], pairs.LONG)
    per = len(weights) // groups
    together = max(1, min(groups, TOGETHER // (4 * (s.plane + per * run))))
    planes = scratch("planes", "int16", (2 * (together * s.plane + run),))
    lines = scratch("lines", "int16", (together, s.plane + BLOCK))
    out = scratch("tiles", "int32", (together * per * run,))
    return partial(
        pairs.depthwise,
        *source,
        per,
        s.stride,
        s.origin,
        *s.deep,
        s.size,
        np.ascontiguousarray(words).view(np.int32).reshape(-1),
        base,
        planes,
        planes.view(np.int32),
        lines,
        out,
        *end,
    )


def _neighbours(s: _Shape) -> list[tuple[int, int, int | None]]:
    """Taps as (start, tap, the tap that starts one place later in the same row, if any), every tap once."""
    at = {start: k for k, start in enumerate(s.taps())}
    found, used = [], set()
    for start in sorted(at):
        if start not in used:
            other = at.get(start + 1) if (start + 1) % s.deep[1] else None
            found.append((start, at[start], other))
            used |= {start, start + 1} if other is not None else {start}
    return found


def _up(count: int, step: int) -> int:
    return -(-count // step) * step


@cache
def trusted() -> bool:
    """Whether the kernels of this machine are exact: every tile height, both edges, operands
    that saturate narrower sums."""
    return all(
        _agrees(seed, out, per, groups)
        for seed, (out, per, groups) in enumerate(((13, 5, 1), (6, 2, 2), (3, 1, 3)))
    )


def _agrees(seed: int, outs: int, per: int, groups: int) -> bool:
    """One padded 3x3 convolution of outermost codes, beside plain sums over int64."""
    rng = np.random.default_rng(seed)
    x, zero = rng.choice(np.array([0, 255], np.uint8), (1, per * groups, 5, 19)), 255 * (seed % 2)
    x[0, 0] = 255 - zero
    weights = rng.choice(np.array([-128, 127], np.int16), (outs, per, 9))
    weights[0] = -128
    shape = _Shape(x.shape, (0, 95, 19, 1), 0, (5, 19), (3, 3), (1, 1), (1, 1), (-1, -1))
    got = np.zeros(outs * 95, np.int32)
    bind = _depthwise if per == 1 and groups > 1 else _dense
    source = (x.reshape(-1), 0, 0, shape.strides, shape.dims, 0, zero)
    step = bind(
        lambda _, dtype, dims: np.empty(dims, dtype),
        shape,
        weights,
        groups,
        source,
        (got, np.zeros(1, np.int64), False),
    )
    step()
    padded = np.pad(x[0].astype(np.int64) - zero, ((0, 0), (1, 1), (1, 1)))
    taps = np.stack([padded[:, i : i + 5, j : j + 19] for i in range(3) for j in range(3)], 1)
    sums = taps.reshape(groups, 1, per, 9, 95) * weights.reshape(groups, -1, per, 9, 1).astype(np.int64)
    return bool(np.array_equal(got, sums.sum((2, 3)).reshape(-1)))
