"""A function of one float, from a table of all patterns."""

from __future__ import annotations

from collections.abc import Iterator

from npuflow.engine.sim import access, exact
from npuflow.engine.sim.memory import SimulatedMemory
from npuflow.engine.sim.opcode import Simulated, Step
from npuflow.engine.sim.operands import Bench
from npuflow.hw.command import Command
from npuflow.hw.isa import OPCODES, numbers, pointer, tensor
from npuflow.hw.region import Region

ENTRIES = 1 << 16


@OPCODES.entry
class FLut(Simulated):
    """y = T[x], x as an unsigned pattern: T has 65,536 patterns of y's type."""

    code = 26
    name = "FLUT"
    queue = "VECTOR"
    fields = (
        *tensor("x", role="float"),
        *tensor("y", "write", role="float"),
        *numbers("dims:4"),
        pointer("table"),
    )
    in_place = True

    def accesses(self, c: Command) -> Iterator[Region]:
        dims = c.vector("dims")
        yield access.tensor(c, "x", dims)
        yield from access.flat(c, "table", ENTRIES, 2)
        yield access.tensor(c, "y", dims, True)

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims = c.vector("dims")
        table = memory.flat(c.core, c.number("table"), "uint16", ENTRIES)
        memory.operand(c, "y", dims)[...] = exact.lookup(table, memory.operand(c, "x", dims), c, "the table")

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.engine.sim.fast_float_rows import table  # its kernels are slow to load

        return table(bench, i, c)
