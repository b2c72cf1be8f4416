"""Elements of a tensor, picked along one dimension by indices in local memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from npuflow.base.compiled import compiled
from npuflow.hw.command import Command
from npuflow.hw.isa import OPCODES, Fields, numbers, tensor
from npuflow.hw.region import Region
from npuflow.isa._selected import row_meant, rows_meant
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class GatherOpcode(Simulated):
    """y[a,j,i] = x[a, r(index[a,j,i]), i] for (a,j,i) < dims; x has `entries` rows, and y its element type.
    r(k) = k, or k + `wrap` of a negative k; `entries` - 1 where that is outside 0 .. `entries` - 1. A stride
    of 0 repeats an index along a dimension.
    """

    code = 32
    name = "GATHER"
    queue = "VECTOR"
    fixed_dims = True
    fields = (
        *tensor("x", rank=3),
        *tensor("index", rank=3),
        *tensor("y", "write", 3),
        *numbers("dims:3 entries wrap"),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        if f["x_type"] != f["y_type"]:
            yield f"x of {f['x_type']}, y of {f['y_type']}"
        if not f["entries"]:
            yield "a table without entries"

    def accesses(self, c: Command) -> Iterator[Region]:
        dims = c.vector("dims")
        yield access.tensor(c, "x", (dims[0], c.number("entries"), dims[2]))
        yield access.tensor(c, "index", dims)
        yield access.tensor(c, "y", dims, True)

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, entries = c.vector("dims"), c.number("entries")
        x = memory.operand(c, "x", (dims[0], entries, dims[2]))
        at = rows_meant(memory.operand(c, "index", dims), entries, c.number("wrap"))
        memory.operand(c, "y", dims)[...] = np.take_along_axis(x, at, 2)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        x, index, y = (bench.operand(i, c, name) for name in ("x", "index", "y"))
        numbers = c.vector("dims"), c.number("entries"), c.number("wrap"), bench.batch
        return partial(gathered, x.parts, index.parts, y.parts, *numbers)


@compiled
def gathered(source, index, target, dims, entries, wrap, batch):  # type: ignore[no-untyped-def]
    (x, x0, xb, xs), (k, k0, kb, ks), (y, y0, yb, ys) = source, index, target
    outer, rows, inner = dims
    for b in range(batch):
        for a in range(outer):
            for j in range(rows):
                for i in range(inner):
                    at = k0 + b * kb + a * ks[0] + j * ks[1] + i * ks[2]
                    row = row_meant(k[at], entries, wrap)
                    value = x[x0 + b * xb + a * xs[0] + row * xs[1] + i * xs[2]]
                    y[y0 + b * yb + a * ys[0] + j * ys[1] + i * ys[2]] = value
