"""The largest or smallest elements along a dimension, and where they are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.compiled import compiled
from npuflow.hw.command import NONE, Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import OPCODES, Fields, numbers, tensor
from npuflow.hw.region import Region
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access

Array = npt.NDArray[Any]


@OPCODES.entry
class TopKOpcode(Simulated):
    """x viewed as [A, R, I], dims = (A, R, I). For each (a, i) the elements of x in order, the largest first
    (`maximum`) or the smallest; of equal ones that with the lower r first, or with `last` the one with the
    higher. y[a,k,i] is the k-th, at[a,k,i] its r, k < `count`; y has x's element type. One of the two may be
    absent. The vector unit makes `count` passes over x.
    """

    code = 34
    name = "TOPK"
    queue = "VECTOR"
    fixed_dims = True
    fields = (
        *tensor("x", rank=3),
        *tensor("y", "write", 3, optional=True),
        *tensor("at", "write", 3, optional=True),
        *numbers("dims:3 count maximum last"),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        if f["y"] == f["at"] == NONE:
            yield "neither elements nor positions"
        if f["y"] != NONE and f["x_type"] != f["y_type"]:
            yield f"x of {f['x_type']}, y of {f['y_type']}"
        if f["at"] != NONE and f["dims"][1] - 1 > ELEMENTS[f["at_type"]].range[1]:
            yield f"positions up to {f['dims'][1] - 1} in {f['at_type']}"
        if not 1 <= f["count"] <= f["dims"][1]:
            yield f"count {f['count']} of {f['dims'][1]}"
        if f["last"] > 1:
            yield "last must be 0 or 1"

    def accesses(self, c: Command) -> Iterator[Region]:
        dims = c.vector("dims")
        made = dims[0], c.number("count"), dims[2]
        yield access.tensor(c, "x", dims)
        for name in ("y", "at"):
            if c.pointer(name) is not None:
                yield access.tensor(c, name, made, True)

    def operations(self, c: Command) -> int:
        return prod(c.vector("dims")) * c.number("count")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, count = c.vector("dims"), c.number("count")
        key = self.keys(memory, c)
        if c.number("last"):
            order = dims[1] - 1 - np.argsort(key[:, :, ::-1], 2, kind="stable")[:, :, :count]
        else:
            order = np.argsort(key, 2, kind="stable")[:, :, :count]
        made = dims[0], count, dims[2]
        if c.pointer("y") is not None:
            x = memory.operand(c, "x", dims)
            memory.operand(c, "y", made)[...] = np.take_along_axis(x, order, 2)
        if c.pointer("at") is not None:
            memory.operand(c, "at", made)[...] = order

    def keys(self, memory: SimulatedMemory, c: Command) -> Array:
        """What decides on the order, lowest first."""
        x = memory.operand(c, "x", c.vector("dims")).astype(np.int64)
        return np.negative(x) if c.number("maximum") else x

    def top(self, c: Command) -> int:
        """The pattern of infinity; -1: x is integers."""
        return -1

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        there = [c.pointer(name) is not None for name in ("y", "at")]
        names = "x", "y" if there[0] else "x", "at" if there[1] else "x"
        ends = [o.parts for o in (bench.operand(i, c, name) for name in names)]
        taken = bench.scratch("taken", "bool", (c.vector("dims")[1],))
        order = c.number("count"), bool(c.number("maximum")), bool(c.number("last")), self.top(c)
        return partial(selected, *ends, c.vector("dims"), order, (*there, taken), bench.batch)


@compiled
def selected(source, values, places, dims, order, wanted, batch):  # type: ignore[no-untyped-def]
    """`order`: how many, whether the largest, whether the last of equals, and the pattern of infinity, beyond
    which NaN lies (-1: x is integers). `wanted`: elements, places, and room for what is taken."""
    (x, x0, xb, xs), (y, y0, yb, ys), (p, p0, pb, ps) = source, values, places
    (count, largest, last, top), (kept, placed, taken) = order, wanted
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
                v = np.int64(x[start + r * xs[1]])
                size = v & 0x7FFF
                if top >= 0:
                    v = size if v & 0x8000 == 0 else -size
                v = v if largest else -v
                if top >= 0 and size > top:
                    v = np.int64(0x10000)
                if found < 0 or v > best or (last and v == best):
                    found, best = r, v
            taken[found] = True
            if kept:
                y[y0 + b * yb + a * ys[0] + k * ys[1] + i * ys[2]] = x[start + found * xs[1]]
            if placed:
                p[p0 + b * pb + a * ps[0] + k * ps[1] + i * ps[2]] = found
