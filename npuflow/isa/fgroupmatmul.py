"""Sums of products of a matrix of floats with weights in groups that have float16 scales."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.isa import FLOAT_SUM, OPCODES, Fields, Terms, numbers, pointer, tensor
from npuflow.hw.region import Region
from npuflow.hw.target import Compute, Target
from npuflow.isa import _grouped
from npuflow.isa.matmul import MatMulOpcode
from npuflow.kernels import cycles
from npuflow.kernels.floats import floats
from npuflow.kernels.grouped import grouped
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class FGroupMatMul(Simulated):
    """acc[b,m,n] (dense, float32) = start + sum over k of a[b,m,k] * w[k,n], summed as FMATMUL sums. w
    lies in groups, and is s * (q - z) or s * q + t, as GROUPMATMUL has it; each w is exact and then
    rounded once to a_type. start is the old acc when accumulate, else the float32 at bias[n], or +0.
    """

    code = 43
    name = "FGROUPMATMUL"
    queue = "TENSOR"
    fields = (
        *tensor("a", rank=3, role="float"),
        *_grouped.FIELDS,
        pointer("bias", optional=True),
        *FLOAT_SUM,
        *numbers("batch m k n accumulate chunk"),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        yield from MatMulOpcode().problems(f)
        yield from floats.chunk_problems(f)
        yield from _grouped.problems(f)

    def accesses(self, c: Command) -> Iterator[Region]:
        return access.multiplied(c, _grouped.weights(c))

    def latency(self, c: Command, target: Target) -> Terms:
        return cycles.on_array(target, *MatMulOpcode().passes(c, target.compute), cycles.widths(c, "a", "b"))

    def products(self, c: Command) -> tuple[int, tuple[int, int, str]]:
        return MatMulOpcode().passes(c, Compute())[2], cycles.widths(c, "a", "b")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
        kind, shape = c.text("a_type"), (n, grouped.groups_of(c), grouped.bytes_of(c))
        raw = memory.flat(c.core, c.number("b"), "uint8", int(np.prod(shape))).reshape(-1, 1, *shape)
        held = floats.pattern(grouped.columns(raw, c).numbers()[..., :k], kind)
        right = np.swapaxes(floats.real(held, kind), -1, -2)
        acc = memory.accumulator(c, (batch, m, n))
        start = np.broadcast_to(floats.start(memory, c, acc, n, 3), acc.shape)
        a = floats.tensor(memory, c, "a", (batch, m, k))
        acc[...] = floats.dot(a, right, c.number("chunk"), start)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.grouped.fast_grouped import float_matmul  # its kernels are slow to load

        return float_matmul(bench, i, c)
