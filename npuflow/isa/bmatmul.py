"""Sums of products of a matrix with weights in blocks that share an exponent."""

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
class BMatMul(Simulated):
    """acc[b,m,n] (dense, float32) = start + sum over k of a[b,m,k] * w[k,n]. w is dense blocks of b_type: a
    block has `size` consecutive k of a column, zeros behind the last one. They are [n, ceil(k / size)] if
    columns, else [ceil(k / size), n]. Where the elements of b_type are integers, a is converted to blocks of
    b_type along k first, else it is taken as it is. The sum of every block is exact and rounded once to
    float32; these are added to start one after the other in float32. start is the old acc when accumulate,
    else the float32 at bias[n], or +0.
    """

    code = 37
    name = "BMATMUL"
    queue = "TENSOR"
    fields = (
        *tensor("a", rank=3, role="float"),
        pointer("b"),
        element("b", "block"),
        pointer("bias", optional=True),
        *FLOAT_SUM,
        *numbers("batch m k n accumulate columns"),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        yield from MatMulOpcode().problems(f)
        yield from blocks.problems(f["a_type"])
        if f["columns"] not in (0, 1):
            yield "columns must be 0 or 1"

    def accesses(self, c: Command) -> Iterator[Region]:
        kind = c.text("b_type")
        count = -(-c.number("k") // blocks.size_of(kind)) * c.number("n")
        return access.multiplied(c, access.flat(c, "b", count * ELEMENTS[kind].block_bytes, 1))

    def latency(self, c: Command, target: Target) -> Terms:
        return cycles.on_array(target, *MatMulOpcode().passes(c, target.compute), cycles.widths(c, "a", "b"))

    def products(self, c: Command) -> tuple[int, tuple[int, int, str]]:
        return MatMulOpcode().passes(c, Compute())[2], cycles.widths(c, "a", "b")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
        kind = c.text("b_type")
        size, bytes_ = blocks.size_of(kind), ELEMENTS[kind].block_bytes
        count = -(-k // size)
        a = floats.real(blocks.taken(memory.operand(c, "a", (batch, m, k)), kind), "bfloat16")
        a = np.pad(a, [*[(0, 0)] * (a.ndim - 1), (0, count * size - k)])
        raw = memory.flat(c.core, c.number("b"), "uint8", n * count * bytes_)
        held = blocks.numbers(raw.reshape(-1, 1, n * count, bytes_), kind)
        right = blocks.matrix(held, n, bool(c.number("columns")))
        acc = memory.accumulator(c, (batch, m, n))
        start = np.broadcast_to(floats.start(memory, c, acc, n, 3), acc.shape)
        acc[...] = floats.dot(a, right, size, start)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.blocks.fast_blocks import matmul  # its kernels are slow to load

        return matmul(bench, i, c)
