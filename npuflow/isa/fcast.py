"""Between codes and floats, and from one float type to another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import BOUNDS, OPCODES, Fields, numbers, tensor
from npuflow.hw.region import Region
from npuflow.kernels.floats import floats
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated, Step
from npuflow.kernels.operands import Bench
from npuflow.program import access


@OPCODES.entry
class FCast(Simulated):
    """From codes: y = clamp(R((x - zero) * factor), low, high). To codes: y = clamp(R(x * factor) + zero,
    low, high), R to the nearest integer, ties to even; NaN gives zero. Between floats: y = clamp(R(x), low,
    high). factor is a pattern of float32; the products are exact.
    """

    code = 25
    name = "FCAST"
    queue = "VECTOR"
    fields = (
        *tensor("x", role="any"),
        *tensor("y", "write", role="any"),
        *numbers("dims:4 factor zero!"),
        *BOUNDS,
    )
    in_place = True

    def problems(self, f: Fields) -> Iterator[str]:
        if ELEMENTS[f["x_type"]].kind == ELEMENTS[f["y_type"]].kind == "int":
            yield f"neither {f['x_type']} nor {f['y_type']} is a float type"

    def accesses(self, c: Command) -> Iterator[Region]:
        return access.elementwise(c, "x")

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        dims, source, kind = c.vector("dims"), c.text("x_type"), c.text("y_type")
        factor = float(np.uint32(c.number("factor")).view(np.float32))
        if ELEMENTS[source].kind == "int":
            codes = memory.operand(c, "x", dims).astype(np.int64) - c.number("zero")
            floats.finish(memory, c, dims, codes * factor)
            return
        value = floats.tensor(memory, c, "x", dims)
        if ELEMENTS[kind].kind == "float":
            floats.finish(memory, c, dims, value)
            return
        with np.errstate(all="ignore"):
            near = np.nan_to_num(np.rint(value * factor), nan=0.0, posinf=1e18, neginf=-1e18)
        made = np.clip(near + c.number("zero"), c.number("low"), c.number("high"))
        memory.operand(c, "y", dims)[...] = made.astype(np.int64)

    def bind(self, bench: Bench, i: int, c: Command) -> Step | None:
        from npuflow.kernels.floats.fast_float_rows import cast  # its kernels are slow to load

        return cast(bench, i, c)
