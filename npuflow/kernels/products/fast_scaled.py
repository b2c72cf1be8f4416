"""Products whose sums are scaled group by group.
Sums of products are made for every group, then a compiled loop multiplies and adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.compiled import compiled
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.kernels.operands import Bench, FlatOperand
from npuflow.kernels.products import fast_convolutions as convolutions
from npuflow.kernels.products.fast_products import EXACT_K, Half, as_bytes, gather, halves
from npuflow.kernels.products.gemm import product

Array = npt.NDArray[Any]
Step = Callable[[], None]
PART_BYTES = 1 << 20               # of sums that are made and added together, to stay in the cache
Parts = Sequence[tuple[int, int]]  # first and one past the last term of every group


@dataclass(frozen=True)
class _Add:
    """Sums of some rows of the accumulator: a product, then its scaled addition."""

    calls: tuple[Step, ...]
    part: Array
    offsets: Array
    scales: Array
    inner: bool  # channels run along a row of the accumulator
    weight: int
    keep: bool


class _Scaled:
    """Products and additions one after the other."""

    def __init__(self, flat: Array, adds: Sequence[_Add]) -> None:
        self.flat, self.adds = flat, adds

    def __call__(self) -> None:
        for one in self.adds:
            for call in one.calls:
                call()
            add = scaled_inner if one.inner else scaled_outer
            add(one.part, self.flat, one.offsets, one.scales, one.weight, one.keep)


@dataclass(frozen=True)
class _Weight:
    """A weight [channels of input, channels of output, ...] as products of bytes take it: numbers, how these
    split into bytes, and what they are less their zero points."""

    numbers: Array
    halves: tuple[Half, ...]
    size: Array


def _weight(
    bench: Bench, i: int, c: Command, name: str, codes: Array, parts: Parts, shape: tuple[int, int]
) -> _Weight | None:
    """`shape`: of several zero points, [groups or 1, channels]. Where there are several, the numbers are less
    these. None: not known, or too large."""
    if c.pointer(f"{name}_zeros") is None:
        zero = c.number(f"{name}_zero")
        found = halves(c.text(f"{name}_type"), zero)
        return None if found is None else _Weight(codes, found, codes - zero)
    zeros = bench.constant(i, c, f"{name}_zeros", "int32", prod(shape))
    if zeros is None:
        return None
    of_groups = np.broadcast_to(zeros.astype(np.int64).reshape(shape), (len(parts), shape[1]))
    of_terms = np.repeat(of_groups, [last - first for first, last in parts], axis=0)
    less = codes - of_terms.reshape(*of_terms.shape, *(1,) * (codes.ndim - 2))
    for kind in ("int8", "int16"):
        lo, hi = ELEMENTS[kind].range
        if lo <= less.min() and less.max() <= hi:
            found = halves(kind, 0)
            return None if found is None else _Weight(less, found, less)
    return None


def matmul(bench: Bench, i: int, c: Command, parts: Parts, zeros: tuple[int, int]) -> Step | None:
    """`zeros`: the shape of the weight's zero points, where there are several."""
    batch, m, k, n = (c.number(name) for name in ("batch", "m", "k", "n"))
    scales = bench.constant(i, c, "scales", c.text("scales_type"), len(parts) * n)
    a_halves = halves(c.text("a_type"), c.number("a_zero"))
    known = not ELEMENTS[c.text("b_type")].packed or bench.knows(i, "b")
    if scales is None or batch > 1 or not known:
        return None
    b = bench.operand(i, c, "b")
    if a_halves is None or b.sample or c.number("group") > EXACT_K:
        return None
    a, rows = bench.operand(i, c, "a"), bench.batch * m
    m_of = scales.astype(np.int64).reshape(len(parts), n)
    index = b.base + np.arange(k)[:, None] * b.strides[1] + np.arange(n) * b.strides[2]
    weight = _weight(bench, i, c, "b", b.flat[index].astype(np.int64), parts, zeros)
    if weight is None:
        return None
    flat, starts = bench.sum(i, c, m * n)
    offsets = (starts[:, None] + np.arange(m) * n).reshape(-1)
    part = bench.scratch("part", "int32", (rows, n))
    adds, keep = [], bool(c.number("accumulate"))
    for (first, last), scale in zip(parts, m_of, strict=True):
        for h in a_halves:
            left = bench.scratch(f"scaled{h.shift}", "uint8", (rows, last - first))
            fill = _filled(
                bench, replace(a, base=a.base + first * a.strides[2]), (1, m, last - first), left, h
            )
            for g in weight.halves:
                right = as_bytes(weight.numbers[first:last], g)
                call = product(left, h.zero, right, g.zero, part)
                adds.append(_Add((fill, call), part, offsets, scale, True, h.weight + g.weight, keep))
                keep = True
    spread = _reach(c, "a")
    bench.grow(i, _peak(np.abs(weight.size), m_of, parts) * spread, bool(c.number("accumulate")))
    return _Scaled(flat, adds)


def _filled(bench: Bench, x: FlatOperand, dims: tuple[int, int, int], out: Array, half: Half) -> Step:
    shaped = out.reshape(bench.batch, *dims)

    def fill() -> None:
        gather(x.parts, dims, shaped, half.shift, half.add)

    return fill


def _reach(c: Command, name: str) -> int:
    lo, hi = ELEMENTS[c.text(f"{name}_type")].range
    return max(abs(lo - c.number(f"{name}_zero")), abs(hi - c.number(f"{name}_zero")))


def _peak(size: Array, scales: Array, parts: Parts) -> int:
    """The largest sum of magnitudes [terms, channels] times the scales of their groups."""
    sums = np.stack([size[a:b].sum(0) for a, b in parts])
    return int((sums.astype(object) * scales.astype(object)).sum(0).max())


def conv(bench: Bench, i: int, c: Command, parts: Parts, zeros: tuple[int, int]) -> Step | None:
    """`zeros`: the shape of the weight's zero points, where there are several."""
    dims, out, taps = c.vector("x_dims"), c.number("out_channels"), prod(c.vector("kernel"))
    pixels, n = c.number("out_height") * c.number("out_width"), dims[0]
    scales = bench.constant(i, c, "scales", c.text("scales_type"), len(parts) * out)
    weights = bench.constant(i, c, "w", c.text("w_type"), out * dims[1] * taps)
    if scales is None or weights is None or not convolutions.trusted():
        return None
    codes = weights.reshape(out, dims[1], taps).astype(np.int64).swapaxes(0, 1)
    weight = _weight(bench, i, c, "w", codes, parts, zeros)
    if weight is None:
        return None
    own = [
        convolutions.passes(
            c.text("x_type"), c.number("x_zero"), weight.size[first:last].swapaxes(0, 1), False
        )
        for first, last in parts
    ]
    if None in own:
        return None
    m_of = scales.astype(np.int64).reshape(len(parts), out)
    flat, starts = bench.sum(i, c, n * out * pixels)
    x, places = bench.operand(i, c, "x"), _places(starts, n, out, pixels)
    # sums of whole elements fit 32 bits before their zero point is added, not after
    kind = "int64" if any(one.wide for made_of in own for one, _, _ in made_of or ()) else "int32"
    step = max(1, min(bench.batch, PART_BYTES // max(1, 4 * n * out * pixels)))
    adds = []
    for start in range(0, bench.batch, step):
        rows, keep = min(step, bench.batch - start) * n, bool(c.number("accumulate"))
        part = bench.scratch("part", kind, (rows * out, pixels))
        sums = part.reshape(-1), np.arange(rows) * out * pixels, False, 0
        offsets = places[start * n * out : (start * n + rows) * out]
        for (first, last), scale, made_of in zip(parts, m_of, own, strict=True):
            command = replace(c, fields={**c.fields, "x_dims": (n, last - first, *dims[2:])})
            shifted = replace(x, base=x.base + start * x.sample + first * x.strides[1])
            shape = convolutions.simple(command, shifted)
            for one, factors, shift in made_of or ():
                call = convolutions.one_pass(bench.scratch, shifted, shape, (one, factors, 1), sums)
                adds.append(_Add((call,), part, offsets, np.tile(scale, rows), False, shift, keep))
                keep = True
    size = np.abs(weight.size).sum(2)
    bench.grow(i, _peak(size, m_of, parts) * _reach(c, "x"), bool(c.number("accumulate")))
    return _Scaled(flat, adds)


def _places(starts: Array, n: int, out: int, pixels: int) -> Array:
    """Where the rows of the accumulator lie, sample by sample, channel by channel."""
    samples = (starts[:, None] + np.arange(n) * out * pixels).reshape(-1)
    return np.asarray((samples[:, None] + np.arange(out) * pixels).reshape(-1))


@compiled
def scaled_inner(part, acc, offsets, scales, shift, keep):  # type: ignore[no-untyped-def]
    """acc = (acc if keep else 0) + part * scales * 2^shift, a scale for every column; containers wrap."""
    n = part.shape[1]
    for r in range(part.shape[0]):
        dst, src = acc[offsets[r] : offsets[r] + n], part[r]
        if keep:
            for i in range(n):
                dst[i] += (np.int64(src[i]) * scales[i]) << shift
        else:
            for i in range(n):
                dst[i] = (np.int64(src[i]) * scales[i]) << shift


@compiled
def scaled_outer(part, acc, offsets, scales, shift, keep):  # type: ignore[no-untyped-def]
    """The same with a scale for every row."""
    n = part.shape[1]
    for r in range(part.shape[0]):
        dst, src, m = acc[offsets[r] : offsets[r] + n], part[r], scales[r]
        if keep:
            for i in range(n):
                dst[i] += (np.int64(src[i]) * m) << shift
        else:
            for i in range(n):
                dst[i] = (np.int64(src[i]) * m) << shift
