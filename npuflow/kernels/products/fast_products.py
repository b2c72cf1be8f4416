"""Matrix products as products of bytes: 16-bit operands in two halves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.compiled import compiled
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.kernels.operands import Bench, FlatOperand
from npuflow.kernels.products.gemm import product

Array = npt.NDArray[Any]
Step = Callable[[], None]
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


@compiled
def gather(source, dims, out, shift, add):  # type: ignore[no-untyped-def]
    """out[b, i, j, k] = byte of a strided 3-dimensional operand + add ((x >> shift) + add, modulo 256)."""
    x, x0, xb, xs = source
    for b in range(out.shape[0]):
        for i in range(dims[0]):
            for j in range(dims[1]):
                at = x0 + b * xb + i * xs[0] + j * xs[1]
                row = out[b, i, j]
                for k in range(dims[2]):
                    row[k] = np.uint8((np.int32(x[at + k * xs[2]]) >> shift) + add)


@compiled
def gather_sums(part, acc, offsets, shift, keep):  # type: ignore[no-untyped-def]
    """acc = (acc if keep else 0) + part * 2^shift, row by row; containers wrap."""
    n = part.shape[1]
    for r in range(part.shape[0]):
        dst, src = acc[offsets[r] : offsets[r] + n], part[r]
        if keep:
            for i in range(n):
                dst[i] += np.int64(src[i]) << shift
        else:
            for i in range(n):
                dst[i] = np.int64(src[i]) << shift


@compiled
def outer_rows(left, right, sums, n, keep):  # type: ignore[no-untyped-def]
    """acc = (acc if keep else 0) + one number times a row, row by row; containers wrap."""
    (a, ao, za), (b, bo, bs, zb), (acc, offsets) = left, right, sums
    for r in range(offsets.shape[0]):
        v, dst = np.int64(a[ao[r]]) - za, acc[offsets[r] : offsets[r] + n]
        if bs == 1 and not keep:
            row = b[bo[r] : bo[r] + n]
            for i in range(n):
                dst[i] = v * (np.int64(row[i]) - zb)
            continue
        for i in range(n):
            product = v * (np.int64(b[bo[r] + i * bs]) - zb)
            dst[i] = dst[i] + product if keep else product


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
    if k == 1 and not any(ELEMENTS[c.text(f"{name}_type")].packed for name in "ab"):
        return _outer(bench, i, c, (batch, m, n), zero)
    return _MatMul(bench, i, c, (batch, m, k, n), a_halves, b_halves)


def _outer(bench: Bench, i: int, c: Command, size: tuple[int, int, int], zero: int) -> Step:
    """A product of columns and rows, as one that puts rows into a cache is."""
    (batch, m, n), sample = size, np.arange(bench.batch)[:, None, None]
    a, b = bench.operand(i, c, "a"), bench.operand(i, c, "b")
    flat, first = bench.sum(i, c, batch * m * n)
    each, row = np.arange(batch)[:, None], np.arange(m)
    lefts = a.base + sample * a.sample + each * a.strides[0] + row * a.strides[1]
    rights = b.base + sample * b.sample + each * b.strides[0] + 0 * row
    sums = first[:, None, None] + each * (m * n) + row * n
    lefts, rights, sums = (v.reshape(-1).astype(np.int64) for v in (lefts, rights, sums))
    factors = (a.flat, lefts, c.number("a_zero")), (b.flat, rights, b.strides[2], zero)
    return partial(outer_rows, *factors, (flat, sums), n, bool(c.number("accumulate")))


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
                gather((self.b.flat, self.b.base, 0, self.b.strides), (batch, k, n), right, h.shift, h.add)
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
            gather(operand.parts, dims, to, half.shift, half.add)
        keep = self.keep
        for call, weight in self.calls:
            call()
            gather_sums(self.part, self.flat, self.offsets, weight, keep)
            keep = True
