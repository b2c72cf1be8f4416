"""The smaller or the larger of two tensors' elements."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from npuflow.base.compiled import compiled
from npuflow.hw.command import Command
from npuflow.hw.isa import CLAMP, OPCODES, numbers, tensor
from npuflow.hw.region import Region
from npuflow.kernels import exact, fast
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class MinMaxOpcode(Simulated):
    """y = clamp(max(a, b) if maximum else min(a, b), lo, hi); all three share one scale."""

    code = 10
    name = "MINMAX"
    queue = "VECTOR"
    any_strides = True
    fields = (*tensor("a"), *tensor("b"), *tensor("y", "write"), *numbers("dims:4 maximum"), *CLAMP)
    in_place = True

    def accesses(self, c: Command) -> Iterator[Region]:
        return access.elementwise(c, "a", "b")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims = c.vector("dims")
        a, b = (memory.operand(c, name, dims).astype(np.int64) for name in "ab")
        best = np.maximum(a, b) if c.number("maximum") else np.minimum(a, b)
        memory.operand(c, "y", dims)[...] = exact.settle(best, c)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        if not fast.same(c, "a", "b"):
            return None
        last = bool(c.number("maximum")), c.number("lo"), c.number("hi")
        return partial(minmax_rows, *fast.elementwise(bench, i, c, "a", "b", "y"), *last)


@compiled
def minmax_rows(left, right, out, n, largest, lo, hi):  # type: ignore[no-untyped-def]
    (a, ao, ast), (b, bo, bs), (y, yo, ys) = left, right, out
    for r in range(yo.shape[0]):
        for i in range(n):
            p, q = np.int32(a[ao[r] + i * ast]), np.int32(b[bo[r] + i * bs])
            v = max(p, q) if largest else min(p, q)
            y[yo[r] + i * ys] = min(max(v, lo), hi)
