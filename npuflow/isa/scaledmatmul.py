"""Sums of products of matrices, scaled group by group of terms."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from npuflow.hw.command import Command
from npuflow.hw.isa import OPCODES
from npuflow.hw.region import Region
from npuflow.hw.target import Compute
from npuflow.isa import _scaled
from npuflow.isa.matmul import MatMulOpcode
from npuflow.kernels import exact
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Step
from npuflow.kernels.operands import Bench


@OPCODES.entry
class ScaledMatMulOpcode(MatMulOpcode):
    """MATMUL whose products are summed in groups of `group` consecutive terms, each sum times a number of its
    own: acc[b,m,n] (+)= sum over g of scales[g,n] * (the sum of MATMUL over k from g*group to (g+1)*group -
    1). `scales` is dense [ceil(k / group), n], and so is `b_zeros` when it is not NONE: each group has zero
    points of its own.
    """

    code = 22
    name = "SCALEDMATMUL"
    fields = (*MatMulOpcode.fields, *_scaled.FIELDS)

    def accesses(self, c: Command) -> Iterator[Region]:
        yield from _scaled.accesses(c, len(_scaled.pieces(c, c.number("k"))), c.number("n"))
        yield from super().accesses(c)

    def zero_count(self, c: Command) -> int:
        return prod(_scaled.zeros_shape(len(_scaled.pieces(c, c.number("k"))), c.number("n")))

    def passes(self, c: Command, compute: Compute) -> tuple[int, int, int]:
        return _scaled.passes(c, compute, super().passes(c, compute))

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        batch, m, k, n = (c.number(i) for i in ("batch", "m", "k", "n"))
        a = exact.signed(memory, c, "a", (batch, m, k))
        b, parts = self._matrix(memory, c, (batch, k, n)), _scaled.pieces(c, k)
        zeros = _scaled.zeros(memory, c, "b", len(parts), n)
        scales = _scaled.scales(memory, c, len(parts), n)
        total: exact.Wide | None = None
        for g, (first, last) in enumerate(parts):
            own = b[..., first:last, :] - zeros[:, g][:, None, None, :]
            sums = exact.matmul(a[..., first:last], own)
            scaled = exact.times(sums, scales[:, g][:, None, None, :])
            total = scaled if total is None else exact.plus(total, scaled)
        assert total is not None
        exact.accumulate(memory, c, (batch, m, n), total)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.products.fast_scaled import matmul  # its kernels are slow to load

        parts = _scaled.pieces(c, c.number("k"))
        return matmul(bench, i, c, parts, _scaled.zeros_shape(len(parts), c.number("n")))
