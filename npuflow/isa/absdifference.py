"""The distance between two tensors' elements."""

from __future__ import annotations

from collections.abc import Iterator

from npuflow.hw.command import Command
from npuflow.hw.isa import CLAMP, OPCODES, ROUNDING, numbers, tensor
from npuflow.hw.region import Region
from npuflow.kernels import exact
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated
from npuflow.program import access


@OPCODES.entry
class AbsDifferenceOpcode(Simulated):
    """y = clamp(R(abs((a - a_zero) * a_multiplier + (b - b_zero) * b_multiplier) / 2^shift) + zero, lo, hi);
    stride 0 broadcasts. Multipliers are signed.
    """

    code = 41
    name = "ABSDIFFERENCE"
    queue = "VECTOR"
    fields = (
        *tensor("a"), *tensor("b"), *tensor("y", "write"),
        *numbers("dims:4 a_zero! b_zero! a_multiplier! b_multiplier! shift! zero!"), *CLAMP, *ROUNDING,
    )
    in_place = True

    def accesses(self, c: Command) -> Iterator[Region]:
        return access.elementwise(c, "a", "b")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims = c.vector("dims")
        a = exact.times(exact.signed(memory, c, "a", dims), c.number("a_multiplier"))
        b = exact.times(exact.signed(memory, c, "b", dims), c.number("b_multiplier"))
        exact.finish(memory, c, dims, abs(a + b))
