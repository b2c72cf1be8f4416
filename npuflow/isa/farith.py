"""Arithmetic of two tensors of floats, element by element."""

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

Real = npt.NDArray[np.float64]
NAMES = ("add", "sub", "mul", "div", "min", "max", "prelu")


def _least(a: Real, b: Real) -> Any:
    return np.where(np.isnan(a) | (a < b), a, b)


def _largest(a: Real, b: Real) -> Any:
    return np.where(np.isnan(a) | (a > b), a, b)


def _prelu(a: Real, b: Real) -> Any:
    return np.where(a < 0, a * b, a)


def _sum(a: Real, b: Real) -> Any:
    """Where float64 loses something, the number toward zero with its last bit set: of two types a sum may
    lie on a border of a third, but for what is lost."""
    total = a + b
    part = total - a
    lost = (a - (total - part)) + (b - part)
    bits = total.view(np.int64) - (np.signbit(lost) != np.signbit(total))
    return np.where(np.isfinite(total) & (lost != 0), (bits | 1).view(np.float64), total)


# In float64 quotients of 16-bit floats are never so near a border between two of them that a second rounding
# could err: 53 bits are more than twice 11 and two. Products are exact.
FUNCTIONS: Mapping[str, Callable[[Real, Real], Any]] = {
    "add": _sum,
    "sub": lambda a, b: _sum(a, -b),
    "mul": np.multiply,
    "div": np.divide,
    "min": _least,
    "max": _largest,
    "prelu": _prelu,
}


@OPCODES.entry
class FArith(Simulated):
    """y = clamp(R(a op b), low, high); stride 0 broadcasts. add, sub, mul, div: exact, rounded once. min
    (max): NaN if either is, a if it is less (greater), else b. prelu: a * b where a < 0, else a.
    """

    code = 24
    name = "FARITH"
    queue = "VECTOR"
    fields = (
        *tensor("a", role="float"),
        *tensor("b", role="float"),
        *tensor("y", "write", role="float"),
        *numbers("dims:4"),
        Field("op", enum=NAMES),
        *BOUNDS,
    )
    in_place = True

    def accesses(self, c: Command) -> Iterator[Region]:
        return access.elementwise(c, "a", "b")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims = c.vector("dims")
        a, b = (floats.tensor(memory, c, name, dims) for name in "ab")
        with np.errstate(all="ignore"):
            floats.finish(memory, c, dims, FUNCTIONS[c.text("op")](a, b))

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.floats.fast_float_rows import arithmetic  # its kernels are slow to load

        return arithmetic(bench, i, c)
