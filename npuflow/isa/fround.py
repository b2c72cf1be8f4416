"""Sums in float32 as numbers of a 16-bit float type."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.isa import BOUNDS, OPCODES, Fields, element, numbers, pointer, tensor
from npuflow.hw.region import Region
from npuflow.kernels.floats import floats
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class FRound(Simulated):
    """y[i] = clamp(R(acc[i] / divisor), low[c], high[c]): the quotient is exact, and rounded once. acc is
    dense over dims; c = index along channel_axis. low/high are patterns of y's type, or uint16 at
    lows/highs.
    """

    code = 23
    name = "FROUND"
    queue = "VECTOR"
    fields = (
        pointer("acc"),
        element("acc", "float_sum"),
        *tensor("y", "write", role="float"),
        *numbers("dims:4 channel_axis divisor"),
        *BOUNDS,
        pointer("lows", optional=True),
        pointer("highs", optional=True),
    )

    def problems(self, f: Fields) -> Iterator[str]:
        if f["channel_axis"] > 3:
            yield f"channel_axis {f['channel_axis']} of a tensor of 4 dimensions"
        if not 1 <= f["divisor"] <= 1 << 24:
            yield f"divisor {f['divisor']} is outside 1..2^24"

    def accesses(self, c: Command) -> Iterator[Region]:
        dims = c.vector("dims")
        yield from access.sums(c, dims, True, False)
        for name in ("lows", "highs"):
            yield from access.flat(c, name, dims[c.number("channel_axis")], 2)
        yield access.tensor(c, "y", dims, True)

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, axis = c.vector("dims"), c.number("channel_axis")

        def bound(name: str) -> np.typing.NDArray[np.uint16] | None:
            at = c.pointer(name)
            if at is None:
                return None
            values = memory.flat(c.core, at, "uint16", dims[axis])
            return values.reshape([-1, *(dims[axis] if i == axis else 1 for i in range(4))])

        # 24 bits over 24: a quotient in float64 lies on no border of 16 bits that the exact one is beside
        with np.errstate(invalid="ignore"):  # NaNs that signal
            value = memory.accumulator(c, dims).astype(np.float64) / c.number("divisor")
        floats.finish(memory, c, dims, value, bound("lows"), bound("highs"))

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.floats.fast_float_rows import rounding  # its kernels are slow to load

        return rounding(bench, i, c)
