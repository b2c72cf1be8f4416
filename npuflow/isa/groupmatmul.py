"""Sums of products of a matrix of integers with weights in groups that have float16 scales."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.isa import OPCODES, SUM, Fields, Terms, numbers, tensor
from npuflow.hw.region import Region
from npuflow.hw.target import Compute, Target
from npuflow.isa import _grouped, _scaled
from npuflow.isa.matmul import MatMulOpcode
from npuflow.kernels import cycles, exact
from npuflow.kernels.grouped import grouped
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class GroupMatMulOpcode(Simulated):
    """acc[b,m,n] (dense, (+)= when accumulate) = sum over k of (a[b,m,k] - a_zero) * w[k,n], w in units
    of 2^-24, all exact. w is dense groups [n, ceil(k / group)] of bytes: a float16 scale s; if offset is
    zero, a byte of the sign of b_type: the zero point z; if it is minimum, a float16 t; then `group`
    codes q of b_type, the last group of a column filled up. w = s * (q - z), z = `zero` where a group has
    none; with a minimum w = s * q + t. A scale or minimum that is infinity or NaN counts as 0.
    """

    code = 42
    name = "GROUPMATMUL"
    queue = "TENSOR"
    layout = "order"
    fields = (
        *tensor("a", rank=3), *numbers("a_zero!"), *_grouped.FIELDS, *SUM, *numbers("batch m k n accumulate"),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        yield from MatMulOpcode().problems(f)
        yield from _grouped.problems(f)

    def accesses(self, c: Command) -> Iterator[Region]:
        batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
        yield access.tensor(c, "a", (batch, m, k))
        yield from _grouped.weights(c)
        yield from access.sums(c, (batch, m, n), bool(c.number("accumulate")))

    def latency(self, c: Command, target: Target) -> Terms:
        return cycles.on_array(target, *self.passes(c, target.compute), cycles.widths(c, "a", "b"))

    def products(self, c: Command) -> tuple[int, tuple[int, int, str]]:
        return self.passes(c, Compute())[2], cycles.widths(c, "a", "b")

    def passes(self, c: Command, compute: Compute) -> tuple[int, int, int]:
        """(array cycles, passes, multiply-accumulates). The array works group by group."""
        return _scaled.passes(c, compute, MatMulOpcode().passes(c, compute))

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
        a = exact.signed(memory, c, "a", (batch, m, k))
        shape = n, grouped.groups_of(c), grouped.bytes_of(c)
        raw = memory.flat(c.core, c.number("b"), "uint8", int(np.prod(shape))).reshape(-1, 1, *shape)
        right = np.swapaxes(grouped.columns(raw, c).fixed()[..., :k], -1, -2)
        exact.accumulate(memory, c, (batch, m, n), exact.matmul(a, right))

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.grouped.fast_grouped import matmul  # its kernels are slow to load

        return matmul(bench, i, c)
