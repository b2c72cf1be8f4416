"""Arithmetic of two tensors of floats, element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.engine.sim import access, floats
from npuflow.engine.sim.memory import SimulatedMemory
from npuflow.engine.sim.opcode import Simulated
from npuflow.hw.command import Command
from npuflow.hw.isa import BOUNDS, OPCODES, Field, numbers, tensor
from npuflow.hw.region import Region

Real = npt.NDArray[np.float64]
NAMES = ("add", "sub", "mul", "div", "min", "max", "prelu")


def _least(a: Real, b: Real) -> Any:
    return np.where(np.isnan(a) | (a < b), a, b)


def _largest(a: Real, b: Real) -> Any:
    return np.where(np.isnan(a) | (a > b), a, b)


def _prelu(a: Real, b: Real) -> Any:
    return np.where(a < 0, a * b, a)


# In float64 sums and quotients of 16-bit floats are never so near a border between two of them that a second
# rounding could err: 53 bits are more than twice 11 and two.
FUNCTIONS: Mapping[str, Callable[[Real, Real], Any]] = {
    "add": np.add,
    "sub": np.subtract,
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
