"""Codes of one scale as codes of another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from npuflow.hw.command import Command
from npuflow.hw.isa import CLAMP, OPCODES, ROUNDING, numbers, tensor
from npuflow.hw.region import Region
from npuflow.kernels import exact, fast
from npuflow.kernels.compiled import linear_rows
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class RescaleOpcode(Simulated):
    """y = clamp(R((x - x_zero) * multiplier / 2^shift) + zero, lo, hi)."""

    code = 12
    name = "RESCALE"
    queue = "VECTOR"
    any_strides = True
    fields = (
        *tensor("x"), *tensor("y", "write"), *numbers("dims:4 x_zero! multiplier shift! zero!"),
        *CLAMP, *ROUNDING,
    )
    in_place = True

    def accesses(self, c: Command) -> Iterator[Region]:
        return access.elementwise(c, "x")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims = c.vector("dims")
        exact.finish(memory, c, dims, exact.times(exact.signed(memory, c, "x", dims), c.number("multiplier")))

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        found = fast.rounding(c, fast.spread(c, "x"), c.number("multiplier"))
        if found is None:
            return None
        factors = c.number("x_zero"), 0, c.number("multiplier") * found[0], 0
        where = fast.elementwise(bench, i, c, "x", "x", "y")
        return partial(linear_rows, *where, factors, *fast.end(c, found))
