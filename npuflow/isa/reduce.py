"""Sums or maxima along dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from npuflow.base.compiled import compiled
from npuflow.hw.command import Command
from npuflow.hw.isa import OPCODES, SUM, numbers, tensor
from npuflow.hw.region import Region
from npuflow.kernels import exact, fast
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class ReduceOpcode(Simulated):
    """x viewed as [A, R, I]; acc[a,i] (dense; combined with the old value when accumulate) = sum over r of
    (x - x_zero), or max over r of (x - x_zero).
    """

    code = 15
    name = "REDUCE"
    queue = "VECTOR"
    any_strides = True
    fields = (
        *tensor("x", rank=3), *numbers("x_zero! dims:3 maximum"), *SUM, *numbers("accumulate"),
    )

    def accesses(self, c: Command) -> Iterator[Region]:
        dims = c.vector("dims")
        yield access.tensor(c, "x", dims)
        yield from access.sums(c, (dims[0], dims[2]), bool(c.number("accumulate")))

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims = c.vector("dims")
        v = exact.signed(memory, c, "x", dims)
        acc = memory.accumulator(c, (dims[0], dims[2]))
        value = v.max(2) if c.number("maximum") else v.sum(2)
        if c.number("accumulate"):
            value = np.maximum(value, acc) if c.number("maximum") else value + acc
        acc[...] = value

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        x, dims = bench.operand(i, c, "x"), c.vector("dims")
        keep = bool(c.number("accumulate"))
        bench.grow(i, fast.spread(c, "x") * (1 if c.number("maximum") else dims[1]), keep)
        flat, starts = bench.sum(i, c, dims[0] * dims[2])
        largest = bool(c.number("maximum"))
        return partial(reduce, x.parts, dims, c.number("x_zero"), (flat, starts), largest, keep)


@compiled
def reduce(source, dims, zero, sums, largest, keep):  # type: ignore[no-untyped-def]
    (x, x0, xb, xs), (acc, offsets) = source, sums
    count, rows, inner = dims
    for b in range(offsets.shape[0]):
        for a in range(count):
            for i in range(inner):
                at = x0 + b * xb + a * xs[0] + i * xs[2]
                v = np.int64(x[at]) - zero
                for r in range(1, rows):
                    d = np.int64(x[at + r * xs[1]]) - zero
                    v = max(v, d) if largest else v + d
                to = offsets[b] + a * inner + i
                if keep:
                    v = max(v, np.int64(acc[to])) if largest else v + np.int64(acc[to])
                acc[to] = v
