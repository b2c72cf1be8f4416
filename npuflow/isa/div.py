"""A quotient of two tensors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from npuflow.base.compiled import compiled
from npuflow.hw.command import Command
from npuflow.hw.isa import CLAMP, OPCODES, ROUNDING, ROUNDINGS, numbers, tensor
from npuflow.hw.region import Region
from npuflow.kernels import exact, fast
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


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

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        shift, multiplier = c.number("shift"), c.number("multiplier")
        above, below = multiplier << max(-shift, 0), 1 << max(shift, 0)
        if not fast.same(c, "a", "b"):
            return None
        if max(fast.spread(c, "a") * above, fast.spread(c, "b") * below) >= fast.LIMIT:
            return None
        where = fast.elementwise(bench, i, c, "a", "b", "y")
        factors, mode = (c.number("a_zero"), c.number("b_zero"), above, below), c.text("rounding")
        return partial(quotient_rows, *where, factors, ROUNDINGS.index(mode), fast.clamp(c))


@compiled
def quotient_rows(left, right, out, n, factors, mode, clamp):  # type: ignore[no-untyped-def]
    (a, ao, ast), (b, bo, bs), (y, yo, ys) = left, right, out
    (za, zb, above, below), (zero, lo, hi) = factors, clamp
    for r in range(yo.shape[0]):
        for i in range(n):
            p = (np.int64(a[ao[r] + i * ast]) - za) * above
            q = (np.int64(b[bo[r] + i * bs]) - zb) * below
            if q < 0:
                p, q = -p, -q
            if q == 0:
                v = (np.int64(p > 0) - np.int64(p < 0)) << 40
            else:
                v = p // q
                rest = p - v * q
                left = q - rest
                if mode == 3:                      # toward zero
                    v += p < 0 and rest != 0
                elif rest > left:
                    v += 1
                elif rest == left:                 # half way
                    v += mode == 0 or (mode == 1 and v % 2 == 1) or (mode == 2 and p >= 0)
            y[yo[r] + i * ys] = min(max(v + zero, lo), hi)
