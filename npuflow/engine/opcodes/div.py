"""A quotient of two tensors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npuflow.engine.sim import access, exact
from npuflow.engine.sim.memory import SimulatedMemory
from npuflow.engine.sim.opcode import Simulated
from npuflow.hw.command import Command
from npuflow.hw.isa import CLAMP, OPCODES, ROUNDING, numbers, tensor
from npuflow.hw.region import Region


@OPCODES.entry
class DivOpcode(Simulated):
    """y = clamp(R((a - a_zero) * multiplier / ((b - b_zero) * 2^shift)) + zero, lo, hi); R of an exact
    quotient; x / 0 saturates to the sign of x, 0 / 0 is zero (the quotient is +-2^40 or 0).
    """

    code = 9
    name = "DIV"
    queue = "VECTOR"
    fields = (
        *tensor("a"), *tensor("b"), *tensor("y", "write"),
        *numbers("dims:4 a_zero! b_zero! multiplier shift! zero!"), *CLAMP, *ROUNDING,
    )
    in_place = True

    def accesses(self, c: Command) -> Iterator[Region]:
        return access.elementwise(c, "a", "b")

    def operations(self, c: Command) -> int:
        return 4 * super().operations(c)

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, shift = c.vector("dims"), c.number("shift")
        num = exact.times(exact.signed(memory, c, "a", dims), c.number("multiplier")).astype(object)
        den = exact.signed(memory, c, "b", dims).astype(object)
        num, size = np.where(den < 0, -num, num), abs(den)
        num, size = num * (1 << max(-shift, 0)), size * (1 << max(shift, 0))
        quotient = exact.ratio(num, np.where(size == 0, 1, size), c.text("rounding"))
        limit = np.where(num > 0, 1 << 40, np.where(num < 0, -(1 << 40), 0))
        memory.operand(c, "y", dims)[...] = exact.settle(np.where(size == 0, limit, quotient), c)
