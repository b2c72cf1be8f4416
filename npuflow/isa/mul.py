"""A product of two tensors."""

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
class MulOpcode(Simulated):
    """y = clamp(R((a - a_zero) * (b - b_zero) * multiplier / 2^shift) + zero, lo, hi)."""

    code = 8
    name = "MUL"
    queue = "VECTOR"
    any_strides = True
    fields = (
        *tensor("a"), *tensor("b"), *tensor("y", "write"),
        *numbers("dims:4 a_zero! b_zero! multiplier shift! zero!"), *CLAMP, *ROUNDING,
    )
    in_place = True

    def accesses(self, c: Command) -> Iterator[Region]:
        return access.elementwise(c, "a", "b")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims = c.vector("dims")
        product = exact.signed(memory, c, "a", dims) * exact.signed(memory, c, "b", dims)
        exact.finish(memory, c, dims, exact.times(product, c.number("multiplier")))

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        if not fast.same(c, "a", "b"):
            return None
        found = fast.rounding(c, fast.spread(c, "a") * fast.spread(c, "b"), c.number("multiplier"))
        if found is None:
            return None
        factors = c.number("a_zero"), c.number("b_zero"), c.number("multiplier") * found[0]
        where = fast.elementwise(bench, i, c, "a", "b", "y")
        return partial(product_rows, *where, factors, *fast.end(c, found))


@compiled
def product_rows(left, right, out, n, factors, rounding, clamp):  # type: ignore[no-untyped-def]
    (a, ao, ast), (b, bo, bs), (y, yo, ys) = left, right, out
    (za, zb, m), (shift, half, mode), (zero, lo, hi) = factors, rounding, clamp
    for r in range(yo.shape[0]):
        if ast == 1 and bs == 1 and ys == 1:
            p, q, dst = a[ao[r] : ao[r] + n], b[bo[r] : bo[r] + n], y[yo[r] : yo[r] + n]
            for i in range(n):
                v = (np.int64(p[i]) - za) * (np.int64(q[i]) - zb) * m
                dst[i] = min(max(rounded(v, shift, half, mode) + zero, lo), hi)
        elif ast == 1 and bs == 0 and ys == 1:
            p, dst, k = a[ao[r] : ao[r] + n], y[yo[r] : yo[r] + n], (np.int64(b[bo[r]]) - zb) * m
            for i in range(n):
                v = (np.int64(p[i]) - za) * k
                dst[i] = min(max(rounded(v, shift, half, mode) + zero, lo), hi)
        else:
            for i in range(n):
                v = (np.int64(a[ao[r] + i * ast]) - za) * (np.int64(b[bo[r] + i * bs]) - zb) * m
                y[yo[r] + i * ys] = min(max(rounded(v, shift, half, mode) + zero, lo), hi)
