"""A function of one number, from a table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from npuflow.base.compiled import compiled
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import CLAMP, OPCODES, Fields, numbers, pointer, tensor
from npuflow.hw.region import Region
from npuflow.kernels import exact, fast
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class LutOpcode(Simulated):
    """T has `entries` entries; an index outside is a fault. bits = 0: y = T[x - base], T of 8- or 16-bit y
    containers. bits = s > 0: d = x - base, i = d >> s, f = d mod 2^s, T of int32 with g = `fraction`
    bits behind the point: y = clamp((T[i] * (2^s - f) + T[i+1] * f + 2^(s+g-1)) >> (s + g), lo, hi)
    (floor).
    """

    code = 16
    name = "LUT"
    queue = "VECTOR"
    any_strides = True
    fields = (
        *tensor("x"), *tensor("y", "write"), *numbers("dims:4 base!"), pointer("table"),
        *numbers("bits entries fraction"), *CLAMP,
    )
    in_place = True

    def problems(self, f: Fields) -> Iterator[str]:
        if f["bits"] > 15:
            yield f"{f['bits']} interpolation bits"
        if f["fraction"] > (15 if f["bits"] else 0):
            yield f"{f['fraction']} bits of fraction"

    def accesses(self, c: Command) -> Iterator[Region]:
        dims = c.vector("dims")
        yield access.tensor(c, "x", dims)
        size = 4 if c.number("bits") else ELEMENTS[c.text("y_type")].bytes
        yield from access.flat(c, "table", c.number("entries"), size)
        yield access.tensor(c, "y", dims, True)

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, bits = c.vector("dims"), c.number("bits")
        d = memory.operand(c, "x", dims).astype(np.int64) - c.number("base")
        y = memory.operand(c, "y", dims)
        kind = "int32" if bits else c.text("y_type")
        table = memory.flat(c.core, c.number("table"), kind, c.number("entries")).astype(np.int64)
        if bits == 0:
            y[...] = exact.lookup(table, d, c, "the table")
            return
        index, part = d >> bits, d & ((1 << bits) - 1)
        low, high = exact.lookup(table, index, c, "the table"), exact.lookup(table, index + 1, c, "the table")
        steps = bits + c.number("fraction")
        line = (low * ((1 << bits) - part) + high * part + (1 << (steps - 1))) >> steps
        y[...] = np.clip(line, c.number("lo"), c.number("hi"))

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        bits, count = c.number("bits"), c.number("entries")
        table = bench.constant(i, c, "table", "int32" if bits else c.text("y_type"), count)
        if table is None:
            return None
        x, y = (bench.operand(i, c, n) for n in "xy")
        n, (xo, yo), (p, s) = fast.rows(bench, c.vector("dims"), x, y)
        wrong = "an index outside the table"
        lo, hi = ELEMENTS[c.text("x_type")].range
        if bits:
            scale, clamp = (bits, c.number("fraction")), (c.number("lo"), c.number("hi"))
            return partial(
                fast.checked(slope_rows, c, wrong), (x.flat, xo, p), (table.copy(), c.number("base")), scale,
                clamp, (y.flat, yo, s), n,
            )
        if hi < 256 and p == s == 1 and lo >= c.number("base") and hi - c.number("base") < count:
            codes = np.arange(256)
            codes = codes if lo == 0 else codes.astype(np.uint8).view(np.int8).astype(np.int64)
            entries = table[codes - c.number("base")].copy()
            return partial(codes_rows, x.flat.view(np.uint8), xo, entries, y.flat, yo, n)
        run = fast.checked(table_rows, c, wrong)
        return partial(run, (x.flat, xo, p), (table.copy(), c.number("base")), (y.flat, yo, s), n)


@compiled
def table_rows(source, entries, out, n):  # type: ignore[no-untyped-def]
    """False when an index leaves the table. `entries`: it, and the code of its first one."""
    (x, xo, xs), (table, base), (y, yo, ys) = source, entries, out
    size, inside = table.shape[0], True
    for r in range(yo.shape[0]):
        for i in range(n):
            d = np.int64(x[xo[r] + i * xs]) - base
            if d < 0 or d >= size:
                inside = False
                d = 0
            y[yo[r] + i * ys] = table[d]
    return inside


@compiled
def codes_rows(x, xo, table, y, yo, n):  # type: ignore[no-untyped-def]
    """y = table[x as a byte]: every code has an entry, rows are contiguous."""
    for r in range(yo.shape[0]):
        src, dst = x[xo[r] : xo[r] + n], y[yo[r] : yo[r] + n]
        for i in range(n):
            dst[i] = table[src[i]]


@compiled
def slope_rows(source, entries, scale, clamp, out, n):  # type: ignore[no-untyped-def]
    (x, xo, xs), (table, base), (y, yo, ys) = source, entries, out
    (bits, fraction), (lo, hi) = scale, clamp
    size, inside = table.shape[0], True
    one, steps = np.int64(1) << bits, bits + fraction
    half = np.int64(1) << (steps - 1)
    for r in range(yo.shape[0]):
        for i in range(n):
            d = np.int64(x[xo[r] + i * xs]) - base
            k = d >> bits
            if k < 0 or k + 1 >= size:
                inside = False
                k = 0
            f = d & (one - 1)
            v = (np.int64(table[k]) * (one - f) + np.int64(table[k + 1]) * f + half) >> steps
            y[yo[r] + i * ys] = min(max(v, lo), hi)
    return inside
