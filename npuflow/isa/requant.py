"""Sums as codes: bias, multiplier, rounding, clamp."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.compiled import compiled
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import CLAMP, OPCODES, ROUNDING, ROUNDINGS, Fields, element, numbers, pointer, tensor
from npuflow.hw.region import Region
from npuflow.kernels import exact, fast
from npuflow.kernels.compiled import rounded, rounded_wide
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench, walk
from npuflow.program import access

Array = npt.NDArray[Any]
_LIMB = 30                                # bits of the lower limb of a sum whose product leaves 62 bits
_WIDE = fast.LIMIT << _LIMB


@OPCODES.entry
class RequantOpcode(Simulated):
    """y[i] = clamp(R((acc[i] + (bias[c] << bias_shift)) * m[c] / 2^shift) + zero, lo[c], hi[c]). acc is
    dense over dims; c = index along channel_axis. bias NONE: 0. m[c] = multiplier, or uint32 at
    `multipliers` when that is not NONE; lo/hi likewise from int32 at los/his.
    """

    code = 6
    name = "REQUANT"
    queue = "VECTOR"
    any_strides = True
    fields = (
        pointer("acc"), element("acc", "sum"), *tensor("y", "write"), *numbers("dims:4 channel_axis"),
        pointer("bias", optional=True), element("bias", "bias"), *numbers("bias_shift multiplier"),
        pointer("multipliers", optional=True), *numbers("shift! zero!"), *CLAMP,
        pointer("los", optional=True), pointer("his", optional=True), *ROUNDING,
    )

    def problems(self, f: Fields) -> Iterator[str]:
        if f["channel_axis"] > 3:
            yield f"channel_axis {f['channel_axis']} of a tensor of 4 dimensions"
        if f["bias_shift"] > 31:
            yield f"bias_shift {f['bias_shift']} is above 31"

    def accesses(self, c: Command) -> Iterator[Region]:
        dims = c.vector("dims")
        channels = dims[c.number("channel_axis")]
        yield from access.sums(c, dims, True, False)
        yield from access.flat(c, "bias", channels, ELEMENTS[c.text("bias_type")].bytes)
        for name in ("multipliers", "los", "his"):
            yield from access.flat(c, name, channels, 4)
        yield access.tensor(c, "y", dims, True)

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, axis = c.vector("dims"), c.number("channel_axis")

        def vector(name: str, dtype: str, otherwise: int) -> exact.Wide:
            at = c.pointer(name)
            if at is None:
                return np.full((1, 1, 1, 1, 1), otherwise, np.int64)
            values = memory.flat(c.core, at, dtype, dims[axis]).astype(np.int64)
            return values.reshape([-1, *(dims[axis] if i == axis else 1 for i in range(4))])

        acc = memory.accumulator(c, dims).astype(np.int64)
        bias = exact.times(vector("bias", c.text("bias_type"), 0), 1 << c.number("bias_shift"))
        acc = exact.plus(acc, bias)
        product = exact.times(acc, vector("multipliers", "uint32", c.number("multiplier")))
        scaled = exact.divided(product, c.number("shift"), c.text("rounding"))
        lo, hi = vector("los", "int32", c.number("lo")), vector("his", "int32", c.number("hi"))
        memory.operand(c, "y", dims)[...] = exact.settle(scaled, c, lo, hi)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        dims, axis = c.vector("dims"), c.number("channel_axis")
        channels = dims[axis]

        def vector(name: str, dtype: str, otherwise: int) -> Array | None:
            if c.pointer(name) is None:
                return np.full(channels, otherwise, np.int64)
            known = bench.constant(i, c, name, dtype, channels)
            return None if known is None else known.astype(np.int64)

        bias = vector("bias", c.text("bias_type"), 0)
        m = vector("multipliers", "uint32", c.number("multiplier"))
        lo, hi = vector("los", "int32", c.number("lo")), vector("his", "int32", c.number("hi"))
        if bias is None or m is None or lo is None or hi is None:
            return None
        peak_bias = int(np.abs(bias).max())
        if peak_bias << c.number("bias_shift") >= fast.LIMIT:
            return None
        bias = bias << c.number("bias_shift")
        peak = bench.peak(i, c)
        sums = peak + int(np.abs(bias).max())
        products = sums * int(m.max())
        if products >= fast.LIMIT:             # by channel: a large bias comes with a small multiplier
            products = max((peak + abs(b)) * k for b, k in zip(bias.tolist(), m.tolist(), strict=True))
        found = fast.rounding(c, products, 1)
        wide = found is None and sums < fast.LIMIT and products < _WIDE and c.number("shift") >= _LIMB
        if wide:
            found = 1, c.number("shift"), 0, ROUNDINGS.index(c.text("rounding"))
        if found is None:
            return None
        scale, shift, half, mode = found
        flat, starts = bench.sum(i, c, int(np.prod(dims)))
        y = bench.operand(i, c, "y")
        dense = tuple(int(np.prod(dims[d + 1 :])) for d in range(4))
        sample = int(starts[1] - starts[0]) if bench.batch > 1 else 0
        strides = ((sample, *dense), (y.sample, *y.strides))
        length, (ao, yo), steps, kept = walk((bench.batch, *dims), strides, 1 + axis)
        totals, out = (flat, ao + starts[0]), (y.flat, yo + y.base, steps[1])
        each, end = (bias, m * scale, lo, hi), (shift, half, mode, c.number("zero"))
        if len(kept):
            numbers = (totals, out, length, kept, each, end)
            if wide:
                return partial(wide_rows, *numbers)
            narrow = sums < 1 << 31 and int(m.max()) * scale < 1 << 32 and shift < 62
            fits = narrow and (products * scale >> shift) + 1 < 1 << 30
            if fits and flat.dtype == np.int32 and steps[1] == 1 and mode < 2:
                return partial(requant_dense, *numbers)
            return partial(requant_rows, *numbers)
        return partial(wide_inner if wide else requant_inner, totals, out, length, each, end)


@compiled
def requant_rows(sums, out, n, channel, each, end):  # type: ignore[no-untyped-def]
    (acc, ao), (y, yo, ys) = sums, out
    (bias, m, lo, hi), (shift, half, mode, zero) = each, end
    for r in range(ao.shape[0]):
        c = channel[r]
        b, k, low, high = bias[c], m[c], lo[c] - zero, hi[c] - zero
        src = acc[ao[r] : ao[r] + n]
        if ys == 1 and mode == 0:            # the usual case by itself: only so does it become vector code
            dst = y[yo[r] : yo[r] + n]
            for i in range(n):
                v = ((np.int64(src[i]) + b) * k + half) >> shift
                dst[i] = min(max(v, low), high) + zero
        else:
            for i in range(n):
                v = rounded((np.int64(src[i]) + b) * k, shift, half, mode)
                y[yo[r] + i * ys] = min(max(v, low), high) + zero


@compiled
def requant_dense(sums, out, n, channel, each, end):  # type: ignore[no-untyped-def]
    """Rows without gaps whose sums, multipliers and results fit 32 bits: vector code.

    Products of unsigned 32-bit numbers are what processors have. So 2^31 is added to every sum, and taken
    off again with 2^62 more, which keeps the total positive: a logical shift is then as good as an
    arithmetic one.
    """
    (acc, ao), (y, yo, _) = sums, out
    (bias, m, lo, hi), (shift, half, mode, zero) = each, end
    top = np.uint64(1) << np.uint64(62)
    up = np.uint64(shift)
    less = np.int64(np.int32(top >> up))
    odd = mode == 1
    add = np.uint64(half - 1 if odd else half)
    for r in range(ao.shape[0]):
        c = channel[r]
        b, k = np.int32(bias[c]), np.uint32(m[c])
        low, high = np.int32(lo[c] - zero), np.int32(hi[c] - zero)
        base = top - (np.uint64(k) << np.uint64(31))
        src, dst = acc[ao[r] : ao[r] + n], y[yo[r] : yo[r] + n]
        if odd:
            for i in range(n):
                p = np.uint64(np.uint32(np.int32(src[i] + b)) ^ np.uint32(0x80000000)) * np.uint64(k) + base
                v = np.int32(np.int32(np.uint32((p + add + ((p >> up) & np.uint64(1))) >> up)) - less)
                dst[i] = np.int32(min(max(v, low), high) + zero)
        else:
            for i in range(n):
                p = np.uint64(np.uint32(np.int32(src[i] + b)) ^ np.uint32(0x80000000)) * np.uint64(k) + base
                v = np.int32(np.int32(np.uint32((p + add) >> up)) - less)
                dst[i] = np.int32(min(max(v, low), high) + zero)


@compiled
def requant_inner(sums, out, n, each, end):  # type: ignore[no-untyped-def]
    (acc, ao), (y, yo, ys) = sums, out
    (bias, m, lo, hi), (shift, half, mode, zero) = each, end
    for r in range(ao.shape[0]):
        src = acc[ao[r] : ao[r] + n]
        if ys == 1:
            dst = y[yo[r] : yo[r] + n]
            for i in range(n):
                v = rounded((np.int64(src[i]) + bias[i]) * m[i], shift, half, mode) + zero
                dst[i] = min(max(v, lo[i]), hi[i])
        else:
            for i in range(n):
                v = rounded((np.int64(src[i]) + bias[i]) * m[i], shift, half, mode) + zero
                y[yo[r] + i * ys] = min(max(v, lo[i]), hi[i])


@compiled
def wide_rows(sums, out, n, channel, each, end):  # type: ignore[no-untyped-def]
    (acc, ao), (y, yo, ys) = sums, out
    (bias, m, lo, hi), (shift, _, mode, zero) = each, end
    for r in range(ao.shape[0]):
        c = channel[r]
        for i in range(n):
            v = rounded_wide(np.int64(acc[ao[r] + i]) + bias[c], m[c], shift, mode) + zero
            y[yo[r] + i * ys] = min(max(v, lo[c]), hi[c])


@compiled
def wide_inner(sums, out, n, each, end):  # type: ignore[no-untyped-def]
    (acc, ao), (y, yo, ys) = sums, out
    (bias, m, lo, hi), (shift, _, mode, zero) = each, end
    for r in range(ao.shape[0]):
        for i in range(n):
            v = rounded_wide(np.int64(acc[ao[r] + i]) + bias[i], m[i], shift, mode) + zero
            y[yo[r] + i * ys] = min(max(v, lo[i]), hi[i])
