"""Convolutions and matrix products as products of bytes: 16-bit operands in two halves,
depthwise by a loop of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.kernels.operands import Bench, FlatOperand
from npuflow.kernels.products import windows as w
from npuflow.kernels.products.fast_columns import filler
from npuflow.kernels.products.fast_convolutions import convolution
from npuflow.kernels.products.gemm import product

Array = npt.NDArray[Any]
Step = Callable[[], None]
COLUMN_BYTES = 1 << 20       # columns are made and used piece by piece, to stay in the cache
EXACT_K = 33025              # products of bytes that 32 bits add up for certain


@dataclass(frozen=True)
class Half:
    """value - zero = sum over halves of 2^weight * (byte - zero), byte = (value >>
    shift) + add, modulo 256."""

    shift: int
    add: int
    zero: int
    weight: int


def halves(dtype: str, zero: int) -> tuple[Half, ...] | None:
    """How an operand splits into bytes, or None if its zero point lies outside its container."""
    lo, hi = ELEMENTS[dtype].range
    if not lo <= zero <= hi:
        return None
    if hi - lo < 256:
        return (Half(0, -lo, zero - lo, 0),)
    top = -lo >> 8
    return Half(8, top, (zero >> 8) + top, 8), Half(0, 0, zero & 255, 0)


def conv(bench: Bench, i: int, c: Command) -> Step | None:
    groups, out = c.number("groups"), c.number("out_channels")
    per = c.vector("x_dims")[1] // groups
    kernel = c.vector("kernel")
    weights = bench.constant(i, c, "w", c.text("w_type"), out * per * prod(kernel))
    zeros = np.full(out, c.number("w_zero"), np.int64)
    if c.pointer("w_zeros") is not None:
        known = bench.constant(i, c, "w_zeros", "int32", out)
        if known is None:
            return None
        zeros = known.astype(np.int64)
    if weights is None or ELEMENTS[c.text("acc_type")].range[1] < 1 << 30:
        return None
    lo, hi = ELEMENTS[c.text("x_type")].range
    spread = max(abs(lo - c.number("x_zero")), abs(hi - c.number("x_zero")))
    size = np.abs(weights.reshape(out, -1).astype(np.int64) - zeros[:, None])
    peak = int(size.sum(1).max()) * spread
    step = convolution(bench, i, c, weights, zeros, peak)
    if step is not None:
        bench.grow(i, peak, bool(c.number("accumulate")))
        return step
    simple = c.vector("insert") == (1, 1) and np.abs(zeros).max() < 1 << 20
    if per == 1 and simple and peak < 1 << 31:
        bench.grow(i, peak, bool(c.number("accumulate")))
        return _depthwise(bench, i, c, weights, zeros)
    if zeros.min() != zeros.max():
        return None
    x_halves, w_halves = halves(c.text("x_type"), c.number("x_zero")), halves(c.text("w_type"), int(zeros[0]))
    if (
        x_halves is None
        or w_halves is None
        or (c.text("acc_type") == "int64" and per * prod(kernel) > EXACT_K)
    ):
        return None
    bench.grow(i, peak, bool(c.number("accumulate")))
    return _Conv(bench, i, c, weights.reshape(out, -1), x_halves, w_halves)


def _depthwise(bench: Bench, i: int, c: Command, weights: Array, zeros: Array) -> Step:
    from functools import partial

    x, dims, kernel = bench.operand(i, c, "x"), c.vector("x_dims"), c.vector("kernel")
    out, size = c.number("out_channels"), (c.number("out_height"), c.number("out_width"))
    flat, starts = bench.sum(i, c, dims[0] * out * prod(size))
    shape = (kernel, c.vector("stride"), c.vector("dilation"), c.vector("origin"), size, out // dims[1])
    # 16-bit factors multiply twice as fast, and 8-bit operands always fit them
    bytes_only = max(ELEMENTS[c.text("x_type")].bytes, ELEMENTS[c.text("w_type")].bytes) == 1
    small = bytes_only and max(int(np.abs(zeros).max()), abs(c.number("x_zero"))) < 1 << 14
    dtype = "int16" if small else "int32"
    reach = [(size[d] - 1) + (kernel[d] - 1) * shape[2][d] // shape[1][d] + 1 for d in (0, 1)]
    columns = max(reach[1], 1)
    buf = bench.scratch("phases", dtype, (prod(shape[1]) * reach[0] * columns + prod(kernel) * columns,))
    plane = bench.scratch("plane", "int32", (size[0] * columns,))
    ready = np.ascontiguousarray(weights.reshape(out, *kernel).astype(dtype))
    return partial(
        w.depthwise, *x.parts, dims, ready, zeros.astype(dtype), *shape,
        c.number("x_zero"), buf, plane, flat, starts, bool(c.number("accumulate")),
    )


class _Conv:
    """Columns of some samples, one product per pair of halves, sums where they belong."""

    def __init__(
        self, bench: Bench, i: int, c: Command, weights: Array, xs: tuple[Half, ...], ws: tuple[Half, ...]
    ) -> None:
        dims, self.groups, self.out = c.vector("x_dims"), c.number("groups"), c.number("out_channels")
        self.pixels = c.number("out_height") * c.number("out_width")
        self.depth = dims[1] // self.groups * prod(c.vector("kernel"))
        n, rows = dims[0], bench.batch * dims[0]
        self.flat, starts = bench.sum(i, c, n * self.out * self.pixels)
        self.offsets = np.concatenate([start + np.arange(n) * self.out * self.pixels for start in starts])
        self.keep = bool(c.number("accumulate"))
        alone = (
            len(xs) == len(ws) == 1
            and not self.keep
            and i in bench.facts.sums
            and c.text("acc_type") == "int32"
        )
        planes = [(as_bytes(weights, h).reshape(self.groups, -1, self.depth), h) for h in ws]
        x = bench.operand(i, c, "x")
        step = n * max(
            1, min(bench.batch, COLUMN_BYTES // max(1, n * self.groups * self.depth * self.pixels))
        )
        # (call, part to add, weight, first, keep)
        self.calls: list[tuple[Step, Array | None, int, int, bool]] = []
        for first in range(0, rows, step):
            self._piece(bench, c, x, first, min(step, rows - first), xs, planes, alone)

    def _piece(
        self, bench: Bench, c: Command, x: FlatOperand, first: int, count: int, xs: tuple[Half, ...],
        planes: list[tuple[Array, Half]], alone: bool,
    ) -> None:
        groups, per = self.groups, self.out // self.groups
        columns = bench.scratch("columns", "uint8", (count, groups, self.depth, self.pixels))
        shape = (count, groups, per, self.pixels)
        size = self.out * self.pixels
        to = (
            self.flat[first * size : (first + count) * size].reshape(shape)
            if alone
            else bench.scratch("part", "int32", shape)
        )
        keep = self.keep
        for h in xs:
            self.calls.append(
                (filler(bench, c, x, columns.reshape(count, -1, self.pixels), first, h), None, 0, 0, False)
            )
            for plane, g in planes:
                if groups > 1:
                    call = product(plane, g.zero, columns, h.zero, to)
                elif self.pixels == 1:         # a product with one column is slow: make the samples its rows
                    turned = np.ascontiguousarray(plane[0].T)
                    call = product(columns.reshape(count, -1), h.zero, turned, g.zero, to.reshape(count, -1))
                else:
                    call = product(plane[0], g.zero, columns[:, 0], h.zero, to[:, 0])
                self.calls.append(
                    (call, None if alone else to.reshape(count, -1), h.weight + g.weight, first, keep)
                )
                keep = True

    def __call__(self) -> None:
        for call, part, weight, first, keep in self.calls:
            call()
            if part is not None:
                w.gather_sums(part, self.flat, self.offsets[first : first + len(part)], weight, keep)


def as_bytes(values: Array, half: Half) -> Array:
    return np.ascontiguousarray(((values.astype(np.int64) >> half.shift) + half.add & 255).astype(np.uint8))


def matmul(bench: Bench, i: int, c: Command) -> Step | None:
    batch, m, k, n = (c.number(name) for name in ("batch", "m", "k", "n"))
    zero = c.number("b_zero")
    if ELEMENTS[c.text("b_type")].packed and not bench.knows(i, "b"):
        return None
    if c.pointer("b_zeros") is not None:
        zeros = bench.constant(i, c, "b_zeros", "int32", n)
        if zeros is None or zeros.min() != zeros.max():
            return None
        zero = int(zeros[0])
    a_halves, b_halves = halves(c.text("a_type"), c.number("a_zero")), halves(c.text("b_type"), zero)
    if a_halves is None or b_halves is None or (c.text("acc_type") == "int64" and k > EXACT_K):
        return None
    spreads = []
    for name, z in (("a", c.number("a_zero")), ("b", zero)):
        lo, hi = ELEMENTS[c.text(f"{name}_type")].range
        spreads.append(max(abs(lo - z), abs(hi - z)))
    bench.grow(i, k * spreads[0] * spreads[1], bool(c.number("accumulate")))
    return _MatMul(bench, i, c, (batch, m, k, n), a_halves, b_halves)


class _MatMul:
    def __init__(
        self, bench: Bench, i: int, c: Command, size: tuple[int, int, int, int],
        a_halves: tuple[Half, ...], b_halves: tuple[Half, ...],
    ) -> None:
        batch, m, k, n = size
        self.a, self.b = bench.operand(i, c, "a"), bench.operand(i, c, "b")
        self.flat, self.offsets = bench.sum(i, c, batch * m * n)
        self.keep = bool(c.number("accumulate"))
        # one matrix for all samples: their rows in one product
        shared = self.b.sample == 0 and batch == 1
        self.fills: list[tuple[FlatOperand, tuple[int, ...], Array, Half]] = []
        lefts, rights = [], []
        for j, h in enumerate(a_halves):
            left = bench.scratch(f"left{j}", "uint8", (bench.batch, batch, m, k))
            self.fills.append((self.a, (batch, m, k), left, h))
            lefts.append((left, h))
        for j, h in enumerate(b_halves):
            if self.b.sample == 0:
                right = np.empty((1, batch, k, n), np.uint8)
                w.gather(self.b.flat, self.b.base, 0, self.b.strides, (batch, k, n), right, h.shift, h.add)
            else:
                right = bench.scratch(f"right{j}", "uint8", (bench.batch, batch, k, n))
                self.fills.append((self.b, (batch, k, n), right, h))
            rights.append((right, h))
        part = bench.scratch("part", "int32", (bench.batch, batch, m, n))
        self.part = part.reshape(bench.batch, -1)
        self.calls = []
        for left, h in lefts:
            for right, g in rights:
                if shared:
                    call = product(left.reshape(-1, k), h.zero, right[0, 0], g.zero, part.reshape(-1, n))
                else:
                    call = product(left, h.zero, right, g.zero, part)
                self.calls.append((call, h.weight + g.weight))

    def __call__(self) -> None:
        for operand, dims, to, half in self.fills:
            w.gather(
                *operand.parts, dims, to, half.shift, half.add
            )
        keep = self.keep
        for call, weight in self.calls:
            call()
            w.gather_sums(self.part, self.flat, self.offsets, weight, keep)
            keep = True

