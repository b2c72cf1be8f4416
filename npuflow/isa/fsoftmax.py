"""Exponentials of floats over their sum, along a dimension."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.isa import OPCODES, Fields, numbers, tensor
from npuflow.hw.region import Region
from npuflow.kernels.floats import floats
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class FSoftmax(Simulated):
    """x and y viewed as [A, R, I]; along R: d = R(m - x), of y's type, with the largest m; e = the float32
    nearest to exp(-d); s = the sum of e by the rule of FREDUCE; y = R(e / s). NaN where one is.
    """

    code = 29
    name = "FSOFTMAX"
    queue = "VECTOR"
    fields = (
        *tensor("x", rank=3, role="float"),
        *tensor("y", "write", 3, "float"),
        *numbers("dims:3 chunk"),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        return floats.chunk_problems(f)

    def accesses(self, c: Command) -> Iterator[Region]:
        dims = c.vector("dims")
        yield access.tensor(c, "x", dims)
        yield access.tensor(c, "y", dims, True)

    def operations(self, c: Command) -> int:
        return 4 * prod(c.vector("dims"))

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, kind = c.vector("dims"), c.text("y_type")
        x = np.moveaxis(floats.tensor(memory, c, "x", dims), 2, -1)  # [B, A, I, R]
        with np.errstate(all="ignore"):
            d = floats.real(floats.pattern(x.max(-1, keepdims=True) - x, kind), kind)
            e = np.exp(-d.astype(np.longdouble)).astype(np.float32).astype(np.float64)
            total = floats.dot(e, np.ones((dims[1], 1)), c.number("chunk"), np.zeros((), np.float32))
            y = floats.pattern(e / total.astype(np.float64), kind)
        memory.operand(c, "y", dims)[...] = np.moveaxis(y, -1, 2)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.floats.fast_float_rows import softmax  # its kernels are slow to load

        return softmax(bench, i, c)
