"""Functions of one float that a vector lane computes without a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.command import Command
from npuflow.hw.isa import BOUNDS, OPCODES, Field, numbers, tensor
from npuflow.hw.region import Region
from npuflow.kernels.floats import floats
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access

# Of 16-bit floats a square is exact in float64, and a root or a quotient never so near a border between two
# of them that a second rounding could err: 53 bits are more than twice 11 and two.
FUNCTIONS: Mapping[str, Callable[[npt.NDArray[np.float64]], Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "square": lambda x: x * x,
    "sqrt": np.sqrt,
    "reciprocal": lambda x: 1.0 / x,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
}


@OPCODES.entry
class FUnary(Simulated):
    """y = clamp(R(f(x)), low, high), f exact and rounded once. neg: -x; abs: |x|; square: x * x; sqrt: the
    root, NaN of what is below 0, a zero keeps its sign; reciprocal: 1 / x, infinity of a zero with its sign;
    floor, ceil, round (ties to even): whole numbers, a zero has the sign of x.
    """

    code = 40
    name = "FUNARY"
    queue = "VECTOR"
    fields = (
        *tensor("x", role="float"),
        *tensor("y", "write", role="float"),
        *numbers("dims:4"),
        Field("op", enum=tuple(FUNCTIONS)),
        *BOUNDS,
    )
    in_place = True

    def accesses(self, c: Command) -> Iterator[Region]:
        return access.elementwise(c, "x")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims = c.vector("dims")
        with np.errstate(all="ignore"):
            value = FUNCTIONS[c.text("op")](floats.tensor(memory, c, "x", dims))
            floats.finish(memory, c, dims, value)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.floats.fast_float_rows import unary  # its kernels are slow to load

        return unary(bench, i, c)
