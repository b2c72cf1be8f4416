"""One factor from zero on, another below."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from npuflow.base.compiled import compiled
from npuflow.hw.command import Command
from npuflow.hw.isa import CLAMP, OPCODES, ROUNDING, numbers, tensor
from npuflow.hw.region import Region
from npuflow.kernels import exact, fast
from npuflow.kernels.compiled import rounded
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class PReluOpcode(Simulated):
    """v = x - x_zero; y = clamp(R(v >= 0 ? v * multiplier / 2^shift : v * (slope - slope_zero) * negative
    / 2^negative_shift) + zero, lo, hi).
    """

    code = 11
    name = "PRELU"
    queue = "VECTOR"
    any_strides = True
    fields = (
        *tensor("x"), *tensor("slope"), *tensor("y", "write"),
        *numbers("dims:4 x_zero! slope_zero! multiplier negative! shift! negative_shift! zero!"),
        *CLAMP, *ROUNDING,
    )
    in_place = True

    def accesses(self, c: Command) -> Iterator[Region]:
        return access.elementwise(c, "x", "slope")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims = c.vector("dims")
        v, slope = exact.signed(memory, c, "x", dims), exact.signed(memory, c, "slope", dims)
        above = exact.divided(exact.times(v, c.number("multiplier")), c.number("shift"), c.text("rounding"))
        product = exact.times(v * slope, c.number("negative"))
        below = exact.divided(product, c.number("negative_shift"), c.text("rounding"))
        memory.operand(c, "y", dims)[...] = exact.settle(np.where(v >= 0, above, below), c)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        if not fast.same(c, "x", "slope"):
            return None
        above = fast.rounding(c, fast.spread(c, "x"), c.number("multiplier"))
        peak = fast.spread(c, "x") * fast.spread(c, "slope")
        below = fast.rounding(c, peak, abs(c.number("negative")), field="negative_shift")
        if above is None or below is None:
            return None
        where = fast.elementwise(bench, i, c, "x", "slope", "y")
        zeros = c.number("x_zero"), c.number("slope_zero")
        factors = (*zeros, c.number("multiplier") * above[0], c.number("negative") * below[0])
        return partial(prelu_rows, *where, factors, (below[1:], above[1:]), fast.clamp(c))


@compiled
def prelu_rows(source, slope, out, n, factors, roundings, clamp):  # type: ignore[no-untyped-def]
    (x, xo, xs), (w, wo, ws), (y, yo, ys) = source, slope, out
    (zx, zw, m, negative), (below, above), (zero, lo, hi) = factors, roundings, clamp
    for r in range(yo.shape[0]):
        for i in range(n):
            d = np.int64(x[xo[r] + i * xs]) - zx
            if d >= 0:
                v = rounded(d * m, *above)
            else:
                v = rounded(d * (np.int64(w[wo[r] + i * ws]) - zw) * negative, *below)
            y[yo[r] + i * ys] = min(max(v + zero, lo), hi)
