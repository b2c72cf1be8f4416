"""Sums of products of two matrices of activations in blocks that share an exponent."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import FLOAT_SUM, OPCODES, Fields, Terms, element, numbers, pointer, tensor
from npuflow.hw.region import Region
from npuflow.hw.target import Compute, Target
from npuflow.isa.matmul import MatMulOpcode
from npuflow.kernels import cycles
from npuflow.kernels.blocks import blocks
from npuflow.kernels.floats import floats
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class BPairs(Simulated):
    """acc[b,m,n] (dense, float32) = start + sum over k of a[b,m,k] * b[b,k,n]. Both are bfloat16 and are
    converted to blocks of held_type along k first, `size` consecutive k each, zeros behind the last one; the
    elements of held_type are integers. The sum of every block is exact and rounded once to float32; these are
    added to start one after the other in float32. start is the old acc when accumulate, else the float32 at
    bias[n], or +0.
    """

    code = 39
    name = "BPAIRS"
    queue = "TENSOR"
    fields = (
        *tensor("a", rank=3, role="float"),
        *tensor("b", rank=3, role="float"),
        element("held", "block"),
        pointer("bias", optional=True),
        *FLOAT_SUM,
        *numbers("batch m k n accumulate"),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        yield from MatMulOpcode().problems(f)
        for name in ("a_type", "b_type"):
            yield from blocks.problems(f[name])
        row = ELEMENTS[f["held_type"]]
        if row.block is None or not row.block.both:
            yield f"the array does not convert numbers to {row.name}"

    def accesses(self, c: Command) -> Iterator[Region]:
        dims = c.number("batch"), c.number("k"), c.number("n")
        return access.multiplied(c, [access.tensor(c, "b", dims)])

    def latency(self, c: Command, target: Target) -> Terms:
        bits = cycles.widths(c, "a", "held")
        return cycles.on_array(target, *MatMulOpcode().passes(c, target.compute), bits)

    def products(self, c: Command) -> tuple[int, tuple[int, int, str]]:
        return MatMulOpcode().passes(c, Compute())[2], cycles.widths(c, "a", "held")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
        kind = c.text("held_type")
        a, b = memory.operand(c, "a", (batch, m, k)), memory.operand(c, "b", (batch, k, n))
        left = floats.real(blocks.taken(a, kind), "bfloat16")
        right = floats.real(blocks.taken(np.swapaxes(b, -1, -2), kind), "bfloat16")
        acc = memory.accumulator(c, (batch, m, n))
        start = np.broadcast_to(floats.start(memory, c, acc, n, 3), acc.shape)
        acc[...] = floats.dot(left, np.swapaxes(right, -1, -2), blocks.size_of(kind), start)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.blocks.fast_blocks import pairs  # its kernels are slow to load

        return pairs(bench, i, c)
