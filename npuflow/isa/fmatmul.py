"""Sums of products of matrices of floats."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.isa import FLOAT_SUM, OPCODES, Fields, Terms, numbers, pointer, tensor
from npuflow.hw.region import Region
from npuflow.hw.target import Compute, Target
from npuflow.isa.matmul import MatMulOpcode
from npuflow.kernels import cycles
from npuflow.kernels.floats import floats
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class FMatMul(Simulated):
    """acc[b,m,n] (dense, float32) = start + sum over k of a[b,m,k] * b[b,k,n]. start is the old acc when
    accumulate, else the float32 at bias[n], or +0. Each `chunk` consecutive k (the last may be fewer) are
    summed exactly and rounded once to float32; these are added to start one after the other in float32.
    """

    code = 31
    name = "FMATMUL"
    queue = "TENSOR"
    fields = (
        *tensor("a", rank=3, role="float"),
        *tensor("b", rank=3, role="float"),
        pointer("bias", optional=True),
        *FLOAT_SUM,
        *numbers("batch m k n accumulate chunk"),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        yield from MatMulOpcode().problems(f)
        yield from floats.chunk_problems(f)

    def accesses(self, c: Command) -> Iterator[Region]:
        dims = c.number("batch"), c.number("k"), c.number("n")
        return access.multiplied(c, [access.tensor(c, "b", dims)])

    def latency(self, c: Command, target: Target) -> Terms:
        return cycles.on_array(target, *MatMulOpcode().passes(c, target.compute), cycles.widths(c, "a", "b"))

    def products(self, c: Command) -> tuple[int, tuple[int, int, str]]:
        return MatMulOpcode().passes(c, Compute())[2], cycles.widths(c, "a", "b")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
        a, b = floats.tensor(memory, c, "a", (batch, m, k)), floats.tensor(memory, c, "b", (batch, k, n))
        acc = memory.accumulator(c, (batch, m, n))
        start = np.broadcast_to(floats.start(memory, c, acc, n, 3), acc.shape)
        acc[...] = floats.dot(a, b, c.number("chunk"), start)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.floats.fast_floats import matmul  # its kernels are slow to load

        return matmul(bench, i, c)
