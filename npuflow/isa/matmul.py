"""Sums of products of matrices."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np

from npuflow.hw.check import MAX_ELEMENTS
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import OPCODES, SUM, Fields, Terms, numbers, pointer, tensor
from npuflow.hw.region import Region
from npuflow.hw.target import Compute, Target
from npuflow.kernels import cycles, exact
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class MatMulOpcode(Simulated):
    """acc[b,m,n] (dense, (+)= when accumulate) = sum over k of (a[b,m,k] - a_zero) * (b[b,k,n] - bz[n]);
    bz[n] = b_zero, or int32 at `b_zeros` when that is not NONE. b_strides of packed types count
    elements.
    """

    code = 5
    name = "MATMUL"
    queue = "TENSOR"
    layout = "order"
    fields = (
        *tensor("a", rank=3), *numbers("a_zero!"), *tensor("b", rank=3, role="weight"), *numbers("b_zero!"),
        pointer("b_zeros", optional=True), *SUM, *numbers("batch m k n accumulate"),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        if f["batch"] * f["m"] * f["n"] > MAX_ELEMENTS or f["k"] > MAX_ELEMENTS:
            yield "the result spans more than 2^31 elements"

    def accesses(self, c: Command) -> Iterator[Region]:
        batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
        yield access.tensor(c, "a", (batch, m, k))
        if ELEMENTS[c.text("b_type")].packed:
            reach = [(d - 1) * s for d, s in zip((batch, k, n), c.vector("b_strides"), strict=True)]
            yield access.packed(c, "b", sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach))
        else:
            yield access.tensor(c, "b", (batch, k, n))
        yield from access.flat(c, "b_zeros", self.zero_count(c), 4)
        yield from access.sums(c, (batch, m, n), bool(c.number("accumulate")))

    def zero_count(self, c: Command) -> int:
        """How many zero points lie at `b_zeros`."""
        return c.number("n")

    def latency(self, c: Command, target: Target) -> Terms:
        return cycles.on_array(target, *self.passes(c, target.compute), cycles.widths(c, "a", "b"))

    def products(self, c: Command) -> tuple[int, tuple[int, int, str]]:
        return self.passes(c, Compute())[2], cycles.widths(c, "a", "b")

    def passes(self, c: Command, compute: Compute) -> tuple[int, int, int]:
        """(array cycles, passes, multiply-accumulates)."""
        batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
        macs = batch * m * k * n
        if compute.dataflow == "weight_stationary":
            passes = batch * ceil(k / compute.array_rows) * ceil(n / compute.array_cols)
            return passes * ceil(m / compute.array_pixels), passes, macs
        passes = batch * ceil(m / compute.array_rows) * ceil(n / compute.array_cols)
        return passes * k, passes, macs

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
        a = exact.signed(memory, c, "a", (batch, m, k))
        b = self._matrix(memory, c, (batch, k, n)) - exact.zeros(memory, c, "b", n)[:, None, None, :]
        exact.accumulate(memory, c, (batch, m, n), exact.matmul(a, b))

    def _matrix(self, memory: SimulatedMemory, c: Command, dims: tuple[int, int, int]) -> exact.Wide:
        """The right operand as int64."""
        if not ELEMENTS[c.text("b_type")].packed:
            return memory.operand(c, "b", dims).astype(np.int64)
        lines = [np.arange(d) * s for d, s in zip(dims, c.vector("b_strides"), strict=True)]
        return exact.packed(memory, c, "b", lines[0][:, None, None] + lines[1][:, None] + lines[2])

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.products.fast_products import matmul  # its kernels are slow to load

        return matmul(bench, i, c)
