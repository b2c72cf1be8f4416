"""A sum or a difference of two tensors."""

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
class AddOpcode(Simulated):
    """y = clamp(R(((a - a_zero) * a_multiplier + (b - b_zero) * b_multiplier) / 2^shift) + zero, lo, hi);
    stride 0 broadcasts. Multipliers are signed (subtraction).
    """

    code = 7
    name = "ADD"
    queue = "VECTOR"
    any_strides = True
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
        exact.finish(memory, c, dims, a + b)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        if not fast.same(c, "a", "b"):
            return None
        ma, mb = c.number("a_multiplier"), c.number("b_multiplier")
        found = fast.rounding(c, fast.spread(c, "a") * abs(ma) + fast.spread(c, "b") * abs(mb), 1)
        if found is None:
            return None
        factors = c.number("a_zero"), c.number("b_zero"), ma * found[0], mb * found[0]
        where = fast.elementwise(bench, i, c, "a", "b", "y")
        return partial(linear_rows, *where, factors, *fast.end(c, found))
