"""Exponentials over their sum, along dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from npuflow.base.compiled import compiled
from npuflow.base.errors import ModelError
from npuflow.hw.command import Command
from npuflow.hw.isa import CLAMP, OPCODES, Fields, numbers, pointer, tensor
from npuflow.hw.region import Region
from npuflow.kernels import exact, fast
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class SoftmaxOpcode(Simulated):
    """x viewed as [A, R, I], over R: d = max - x; e = (low[d mod 2^low_bits] * high[d >> low_bits]) >> 15
    with uint32 tables, 2^low_bits entries in low and `entries` in high (high NONE: e = low[d],
    `entries` in low); S = sum e (int64); y = clamp(floor((2 * e * multiplier + S) / (2 * S)) + zero,
    lo, hi).
    """

    code = 17
    name = "SOFTMAX"
    queue = "VECTOR"
    layout = "order"
    fixed_dims = True
    fields = (
        *tensor("x", rank=3), *tensor("y", "write", rank=3), *numbers("dims:3"), pointer("low"),
        pointer("high", optional=True), *numbers("low_bits entries multiplier zero!"), *CLAMP,
    )

    def problems(self, f: Fields) -> Iterator[str]:
        if f["low_bits"] > 16:
            yield f"{f['low_bits']} low bits"

    def accesses(self, c: Command) -> Iterator[Region]:
        dims = c.vector("dims")
        yield access.tensor(c, "x", dims)
        two = c.pointer("high") is not None
        yield from access.flat(c, "low", 1 << c.number("low_bits") if two else c.number("entries"), 4)
        yield from access.flat(c, "high", c.number("entries"), 4)
        yield access.tensor(c, "y", dims, True)

    def operations(self, c: Command) -> int:
        return 4 * super().operations(c)

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, bits = c.vector("dims"), c.number("low_bits")
        x = memory.operand(c, "x", dims).astype(np.int64)
        d = x.max(2, keepdims=True) - x
        entries, high = c.number("entries"), c.pointer("high")
        size = entries if high is None else 1 << bits
        low = memory.flat(c.core, c.number("low"), "uint32", size).astype(np.int64)
        if high is None:
            e = exact.lookup(low, d, c, "low")
        else:
            upper = memory.flat(c.core, high, "uint32", entries).astype(np.int64)
            fine = exact.lookup(low, d & ((1 << bits) - 1), c, "low")
            e = exact.times(fine, exact.lookup(upper, d >> bits, c, "high")) >> 15
        total = e.sum(2, keepdims=True)
        if not np.all(total > 0):
            raise ModelError("SOFTMAX: the sum of exponentials is 0", code="NF-SIM-005")
        y = (exact.times(2 * e, c.number("multiplier")) + total) // (2 * total)
        memory.operand(c, "y", dims)[...] = exact.settle(y, c)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        bits, entries, two = c.number("low_bits"), c.number("entries"), c.pointer("high") is not None
        low = bench.constant(i, c, "low", "uint32", 1 << bits if two else entries)
        high = bench.constant(i, c, "high", "uint32", entries) if two else np.zeros(0, np.uint32)
        if low is None or high is None:
            return None
        e = int(low.max()) * int(high.max()) >> 15 if two else int(low.max())
        dims = c.vector("dims")
        if 2 * e * max(c.number("multiplier"), dims[1]) * 2 >= fast.LIMIT:
            return None
        if two and int(low.max()) * int(high.max()) >= fast.LIMIT:
            return None
        x, y = (bench.operand(i, c, n) for n in "xy")
        where, tables = (x.parts, y.parts, bench.batch, dims), (low.copy(), high.copy(), bits)
        run = fast.checked(softmax, c, "an index outside a table, or a sum of 0")
        return partial(run, *where, tables, c.number("multiplier"), fast.clamp(c))


@compiled
def softmax(source, target, batch, dims, tables, m, clamp):  # type: ignore[no-untyped-def]
    """False when an index leaves a table or the exponentials sum to 0. `tables`: low, high (empty if there is
    one table), and the bits of the lower one."""
    (x, x0, xb, xs), (y, y0, yb, ys), (low, high, bits), (zero, lo, hi) = source, target, tables, clamp
    count, rows, inner = dims
    e = np.empty(rows, np.int64)
    good = True
    for b in range(batch):
        for a in range(count):
            for i in range(inner):
                at = x0 + b * xb + a * xs[0] + i * xs[2]
                top = np.int64(x[at])
                for r in range(rows):
                    top = max(top, np.int64(x[at + r * xs[1]]))
                total = np.int64(0)
                for r in range(rows):
                    d = top - np.int64(x[at + r * xs[1]])
                    k = d if high.shape[0] == 0 else d >> bits
                    v = np.int64(0)
                    if high.shape[0] == 0:
                        good = good and k < low.shape[0]
                        v = np.int64(low[min(k, low.shape[0] - 1)])
                    else:
                        good = good and k < high.shape[0]
                        coarse = np.int64(high[min(k, high.shape[0] - 1)])
                        v = (np.int64(low[d & ((1 << bits) - 1)]) * coarse) >> 15
                    e[r] = v
                    total += v
                if total <= 0:
                    good = False
                    total = np.int64(1)
                to = y0 + b * yb + a * ys[0] + i * ys[2]
                for r in range(rows):
                    v = (2 * e[r] * m + total) // (2 * total) + zero
                    y[to + r * ys[1]] = min(max(v, lo), hi)
    return good
