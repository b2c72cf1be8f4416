"""Rows of a table in external memory, picked by indices in local memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import OPCODES, SPACES, Field, Fields, element, numbers
from npuflow.hw.region import LOCAL, Region
from npuflow.isa._selected import rows_meant
from npuflow.isa._transfers import BusTransferOpcode
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Step
from npuflow.kernels.operands import Bench


@OPCODES.entry
class LoadRowsOpcode(BusTransferOpcode):
    """An indirect LOAD: y[j, i] = external[r(index[j]) * row + i] for (j, i) < dims, `element` bytes each
    (1, 2, 4 or 8), `row` in bytes. r(k) = k, or k + `wrap` of a negative k; `entries` - 1 where that is
    outside 0 .. `entries` - 1. Every j is a row of the transfer of its own. The whole table, `entries` rows,
    counts as read.
    """

    code = 33
    name = "LOADROWS"
    queue = "LOAD"
    fields = (
        Field("space", enum=SPACES),
        *numbers("external element row entries wrap"),
        Field("index", access="read"),
        element("index", "tensor"),
        *numbers("index_step!"),
        Field("y", access="write"),
        *numbers("dims:2 y_strides:2!"),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        yield from super().problems(f)
        if not f["entries"]:
            yield "a table without entries"

    def accesses(self, c: Command) -> Iterator[Region]:
        (rows, width), size = c.vector("dims"), c.number("element")
        table = (c.number("entries"), width), (c.number("row"), size)
        yield Region("external", c.text("space"), False, c.number("external"), size, *table)
        yield Region("index", LOCAL, False, c.number("index"), _bytes(c), (rows,), (c.number("index_step"),))
        yield Region("y", LOCAL, True, c.number("y"), size, (rows, width), c.vector("y_strides"))

    def external_rows(self, c: Command) -> tuple[int, int]:
        rows, width = c.vector("dims")
        return rows, width * c.number("element")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        rows, _ = c.vector("dims")
        index = c.number("index"), c.text("index_type"), (rows,), (c.number("index_step"),)
        at = rows_meant(memory.view(memory.local[c.core], *index), c.number("entries"), c.number("wrap"))
        table, y = memory.rows(c)
        table = np.broadcast_to(table, (len(at), *table.shape[1:]))
        y[...] = np.take_along_axis(table, at[:, :, None], 1)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        return partial(self.execute, bench.memory, c)


def _bytes(c: Command) -> int:
    return ELEMENTS[c.text("index_type")].bytes
