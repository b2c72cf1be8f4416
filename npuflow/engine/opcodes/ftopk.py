"""The largest or smallest floats along a dimension, and where they are."""

from __future__ import annotations

from functools import partial

import numpy as np

from npuflow.engine.opcodes.topk import TopKOpcode
from npuflow.engine.sim import floats
from npuflow.engine.sim.compiled import compiled
from npuflow.engine.sim.memory import SimulatedMemory
from npuflow.engine.sim.opcode import Step
from npuflow.engine.sim.operands import Bench
from npuflow.hw.command import Command
from npuflow.hw.floats import infinity
from npuflow.hw.isa import OPCODES, numbers, tensor


@OPCODES.entry
class FTopK(TopKOpcode):
    """TOPK of floats: elements are moved as they are. NaN comes before every number, whether the largest or
    the smallest are looked for; zeros are equal whatever their sign.
    """

    code = 38
    name = "FTOPK"
    fields = (
        *tensor("x", rank=3, role="float"),
        *tensor("y", "write", 3, optional=True, role="any"),
        *tensor("at", "write", 3, optional=True),
        *numbers("dims:3 count maximum last"),
    )

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, count = c.vector("dims"), c.number("count")
        value = floats.tensor(memory, c, "x", dims)
        value = np.where(c.number("maximum"), -value, value)
        # numpy sorts NaN to the end: the first are picked from numbers alone, behind all NaN
        key = np.where(np.isnan(value), -np.inf, np.clip(value, -1e300, 1e300))
        if c.number("last"):
            order = dims[1] - 1 - np.argsort(key[:, :, ::-1], 2, kind="stable")[:, :, :count]
        else:
            order = np.argsort(key, 2, kind="stable")[:, :, :count]
        made = dims[0], count, dims[2]
        if c.pointer("y") is not None:
            patterns = memory.operand(c, "x", dims)
            memory.operand(c, "y", made)[...] = np.take_along_axis(patterns, order, 2)
        if c.pointer("at") is not None:
            memory.operand(c, "at", made)[...] = order

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        there = [c.pointer(name) is not None for name in ("y", "at")]
        names = "x", "y" if there[0] else "x", "at" if there[1] else "x"
        ends = [o.parts for o in (bench.operand(i, c, name) for name in names)]
        taken = bench.scratch("taken", "bool", (c.vector("dims")[1],))
        numbers = c.vector("dims"), c.number("count"), c.number("maximum"), c.number("last"), *there
        parts = [part for end in ends for part in end]
        return partial(selected, *parts, *numbers, infinity(c.text("x_type")), taken, bench.batch)


@compiled
def selected(  # type: ignore[no-untyped-def]
    x, x0, xb, xs, y, y0, yb, ys, p, p0, pb, ps, dims, count, largest, last, kept, placed, top, taken, batch
):
    outer, rows, inner = dims
    for n in range(batch * outer * inner):
        b, a, i = n // (outer * inner), n // inner % outer, n % inner
        start = x0 + b * xb + a * xs[0] + i * xs[2]
        taken[:rows] = False
        for k in range(count):
            found = -1
            best = np.int64(0)
            for r in range(rows):
                if taken[r]:
                    continue
                pattern = np.int64(x[start + r * xs[1]]) & 0xFFFF
                size = pattern & 0x7FFF
                v = -size if pattern != size else size
                v = v if largest else -v
                v = np.int64(0x10000) if size > top else v
                if found < 0 or v > best or (last and v == best):
                    found, best = r, v
            taken[found] = True
            if kept:
                y[y0 + b * yb + a * ys[0] + k * ys[1] + i * ys[2]] = x[start + found * xs[1]]
            if placed:
                p[p0 + b * pb + a * ps[0] + k * ps[1] + i * ps[2]] = found
