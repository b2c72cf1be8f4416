"""Binds convolutions of integers to the kernel of `pairs`.
Wide operands are split where sums need it, weights and taps laid out once, tiles chosen to fit the caches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
FEW = 4                          # outputs of a channel that need no panel of its places


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
    insert: tuple[int, int] = (1, 1)

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


@dataclass(frozen=True)
class Part:
    """Elements, or one byte of each, as factors: value - zero = sum over parts of 2^weight * (factor - zero).

    `place`: which byte of an element; `wide`: the whole element, of 16 bits. `flip`: the bits that are turned
    and `less` what is then taken off, which gives the factor; `zero` is that of a place outside the tile.
    """

    place: int
    wide: bool
    flip: int
    less: int
    zero: int
    weight: int

    @property
    def most(self) -> int:
        """The largest magnitude of a factor."""
        return LIMIT if self.wide else max(abs(self.less), abs(255 - self.less))


def parts_of(dtype: str, zero: int) -> list[tuple[Part, ...]]:
    """How an operand may be split, best first; nothing for elements of more than two bytes, and zero points
    far from them."""
    kind = ELEMENTS[dtype]
    sign = 128 if kind.signed else 0
    found: list[tuple[Part, ...]] = []
    if kind.bytes == 1:
        found = [(Part(0, False, sign, sign + zero, 0, 0),)]
    elif kind.bytes == 2 and kind.range[0] <= zero <= kind.range[1]:
        high, low = Part(1, False, sign, sign + (zero >> 8), 0, 8), Part(0, False, 0, zero & 255, 0, 0)
        whole = Part(0, True, 0, 0, zero, 0) if kind.signed else Part(0, True, -LIMIT, 0, zero - LIMIT, 0)
        found = [(whole,), (high, low)]
    return [parts for parts in found if all(p.most < LIMIT or p.wide for p in parts)]


def passes(dtype: str, zero: int, weights: Array, wraps: bool) -> list[tuple[Part, Array, int]] | None:
    """The products that a convolution is made of: parts of its operand, 16-bit weights, and what the sums are
    shifted by. None where there are no such."""
    for split in (False, True):
        for parts in parts_of(dtype, zero):
            found = weight_parts(weights, max(p.most for p in parts), wraps, split)
            if found is not None:
                return [(part, factors, part.weight + shift) for part in parts for factors, shift in found]
    return None


def weight_parts(weights: Array, most: int, wraps: bool, split: bool) -> list[tuple[Array, int]] | None:
    """Numbers [out, ...] as 16-bit factors and what their sums are shifted by, for operands up to `most`.
    Sums of a part stay in 32 bits, unless what they are added to `wraps` as they do; else None."""

    def fits(found: Array) -> bool:
        peak = int(np.abs(found).reshape(len(found), -1).sum(1).max()) * most
        return bool(found.min() >= -LIMIT and found.max() < LIMIT) and (wraps or peak < 1 << 31)

    parts = [(weights >> 8, 8), (weights & 255, 0)] if split else [(weights, 0)]
    if not all(fits(part) for part, _ in parts):
        return None
    return [(part.astype(np.int16), shift) for part, shift in parts]


def conv(bench: Bench, i: int, c: Command) -> Step | None:
    """The command by products of 16-bit pairs; None where an operand is not known, or too large."""
    groups, out, kernel = c.number("groups"), c.number("out_channels"), c.vector("kernel")
    per = c.vector("x_dims")[1] // groups
    known = bench.constant(i, c, "w", c.text("w_type"), out * per * prod(kernel))
    zeros: Array | None = np.full(out, c.number("w_zero"), np.int64)
    if c.pointer("w_zeros") is not None:
        zeros = bench.constant(i, c, "w_zeros", "int32", out)
    if known is None or zeros is None or not known.size or not trusted():
        return None
    if ELEMENTS[c.text("acc_type")].range[1] < 1 << 30 or min(c.vector("x_dims")[:2]) == 0:
        return None
    weights = known.reshape(out, per, prod(kernel)).astype(np.int64) - zeros.astype(np.int64)[:, None, None]
    made_of = passes(c.text("x_type"), c.number("x_zero"), weights, c.text("acc_type") == "int32")
    if made_of is None:
        return None
    keep = bool(c.number("accumulate"))
    lo, hi = ELEMENTS[c.text("x_type")].range
    spread = max(abs(lo - c.number("x_zero")), abs(hi - c.number("x_zero")))
    x = bench.operand(i, c, "x")
    shape = simple(c, x)
    count = shape.dims[0] * out * prod(shape.size)
    flat, starts = bench.sum(i, c, count)
    offsets = np.concatenate([s + np.arange(shape.dims[0]) * (count // shape.dims[0]) for s in starts])
    bench.grow(i, int(np.abs(weights).reshape(out, -1).sum(1).max()) * spread, keep)
    steps = []
    for part, factors, shift in made_of:
        steps.append(one_pass(bench.scratch, x, shape, (part, factors, groups), (flat, offsets, keep, shift)))
        keep = True
    return steps[0] if len(steps) == 1 else partial(in_turn, steps)


def in_turn(steps: Sequence[Step]) -> None:
    for step in steps:
        step()


def one_pass(
    scratch: Scratch, x: FlatOperand, s: _Shape, factors: tuple[Part, Array, int],
    end: tuple[Array, Array, bool, int],
) -> Step:
    """The products of a part of an operand, and weights in groups. `end`: an accumulator, where samples start
    in it, whether it holds sums, places to shift by."""
    (part, weights, groups), (acc, offsets, keep, shift) = factors, end
    kind, count = (np.int16, 1) if part.wide else (np.uint8, x.flat.itemsize)
    at = (x.base + s.skip) * count + part.place
    strides, signs = tuple(v * count for v in s.strides), (part.flip, part.less, part.zero)
    source = x.flat.view(kind), at, x.sample * count, strides, s.dims, signs
    more = weights.reshape(len(weights), -1).sum(1, dtype=np.int64) * -part.zero
    return product(scratch, s, weights, groups, source, (acc, offsets, keep, more, shift))


def simple(c: Command, x: FlatOperand) -> _Shape:
    """Strides of one-tap axes become those of the tile; what then reads the tile as
    it lies becomes one long row."""
    dims, strides, skip = list(c.vector("x_dims")), list(x.strides), 0
    size, kernel, stride, dilation, origin, insert = (
        list(v)
        for v in (
            (c.number("out_height"), c.number("out_width")), c.vector("kernel"), c.vector("stride"),
            c.vector("dilation"), c.vector("origin"), c.vector("insert"),
        )
    )
    for d in (0, 1):
        if kernel[d] == insert[d] == 1:
            late = max(0, -(origin[d] // stride[d]))                 # outputs before the tile's first row
            start = late * stride[d] + origin[d]
            skip += start * strides[2 + d]
            dims[2 + d] = max(0, -((start - dims[2 + d]) // stride[d]))
            strides[2 + d] *= stride[d]
            stride[d], origin[d], dilation[d] = 1, -late, 1
    still = kernel == insert == [1, 1] and origin == [0, 0]
    if still and size == dims[2:] and strides[2] == size[1] * strides[3]:
        size = dims[2:] = [1, prod(size)]
    pair = [(v[0], v[1]) for v in (size, kernel, stride, dilation, origin, insert)]
    return _Shape(tuple(dims), tuple(strides), skip, *pair)


def product(
    scratch: Scratch, s: _Shape, weights: Array, groups: int, source: tuple[Any, ...], end: tuple[Any, ...]
) -> Step:
    """The kernel for 16-bit weights [out, channels, taps], bound. `source`, `end`: as `pairs.convolution` has
    them."""
    outs, per, taps = len(weights) // groups, weights.shape[1], weights.shape[2]
    halves, beside, together, size = (per + 1) // 2, 1, 1, s.size
    direct = per == 1 and groups > 1 and outs < FEW
    # planes that are the outputs' places, no more: samples side by side, each as one long row
    if per > 1 and s.kernel == (1, 1) and s.deep == s.size and s.plane == prod(s.size):
        room = min(PLANES // (4 * halves * s.plane), SUMS // (4 * outs * s.plane))
        together = max(1, min(len(end[1]), room))
        size = (1, s.plane) if together > 1 else s.size
    if per == 1:
        words, base = _neighbours(s, weights.reshape(groups, outs, taps))
    else:
        words, base = _channels(s, weights.reshape(groups, outs, per, taps), together)
    rows, a = (np.array([(0, outs, 0)]), words.reshape(-1)) if direct else _blocks(words)
    chunk, run = _chunk(s, outs)
    if together > 1:
        chunk, run = 1, together * s.plane
    if direct:
        chunk, run = s.size[0], (s.size[0] - 1) * s.deep[1] + s.size[1]
    pitch = _up(run, pairs.LONG if direct else pairs.WIDE)
    if direct:
        beside = max(1, min(groups, TOGETHER // (4 * (s.plane + outs * pitch))))
    planes = scratch("planes", "int16", (2 * (halves * together * beside * s.plane + pitch + BLOCK),))
    space = (
        planes,
        planes.view(np.int32),
        scratch("lines", "int16", (max(2, beside), s.plane + BLOCK)),
        scratch("tiles", "int32", (outs * beside * pitch,)),
        pitch,
    )
    window = s.stride, s.origin, s.insert, s.deep, size
    order = groups, beside, together, chunk, per == 1
    panel = scratch("panel", "int32", (pairs.DEEP * pairs.WIDE,)), np.arange(pairs.DEEP) * pairs.WIDE
    made = None if direct else panel
    return partial(pairs.convolution, source, window, order, (a, rows, base), space, made, end)


def _channels(s: _Shape, weights: Array, together: int) -> tuple[Array, Array]:
    """Weights [groups, outputs, channels, taps] as words of two channels each, [groups, outputs, K], and
    where their planes start, tap by tap."""
    groups, outs, per, taps = weights.shape
    halves = (per + 1) // 2
    base = np.add.outer(np.arange(halves) * together * s.plane, np.array(s.taps())).reshape(-1)
    padded = np.zeros((groups, outs, 2 * halves, taps), np.int16)
    padded[:, :, :per] = weights
    words = padded.reshape(groups, outs, halves, 2, taps).transpose(0, 1, 2, 4, 3)
    return np.ascontiguousarray(words).view(np.int32).reshape(groups, outs, -1), base


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


def _neighbours(s: _Shape, weights: Array) -> tuple[Array, Array]:
    """Weights [groups, outputs, taps] as words of two taps each, [groups, outputs, K], and where the first of
    the two starts: taps that follow each other in a row, every tap once."""
    at = {start: k for k, start in enumerate(s.taps())}
    found, used = [], set()
    for start in sorted(at):
        if start not in used:
            other = at.get(start + 1) if (start + 1) % s.deep[1] else None
            found.append((start, at[start], other))
            used |= {start, start + 1} if other is not None else {start}
    words = np.zeros((*weights.shape[:2], len(found), 2), np.int16)
    for k, (_, one, two) in enumerate(found):
        words[:, :, k, 0] = weights[:, :, one]
        if two is not None:
            words[:, :, k, 1] = weights[:, :, two]
    return words.view(np.int32)[..., 0], np.array([start for start, _, _ in found])


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
    source = (x.reshape(-1), 0, 0, shape.strides, shape.dims, (0, zero, 0))
    step = product(
        lambda _, dtype, dims: np.empty(dims, dtype),
        shape,
        weights,
        groups,
        source,
        (got, np.zeros(1, np.int64), False, np.zeros(outs, np.int64), 0),
    )
    step()
    padded = np.pad(x[0].astype(np.int64) - zero, ((0, 0), (1, 1), (1, 1)))
    taps = np.stack([padded[:, i : i + 5, j : j + 19] for i in range(3) for j in range(3)], 1)
    sums = taps.reshape(groups, 1, per, 9, 95) * weights.reshape(groups, -1, per, 9, 1).astype(np.int64)
    return bool(np.array_equal(got, sums.sum((2, 3)).reshape(-1)))
