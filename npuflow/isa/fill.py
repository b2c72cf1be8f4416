"""One number in every place."""

from __future__ import annotations

from collections.abc import Iterator

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import OPCODES, Fields, numbers, tensor
from npuflow.hw.region import Region
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated
from npuflow.program import access


@OPCODES.entry
class FillOpcode(Simulated):
    """y[i] = value."""

    code = 3
    name = "FILL"
    queue = "VECTOR"
    fields = (*tensor("y", "write"), *numbers("dims:4 value!"))

    def problems(self, f: Fields) -> Iterator[str]:
        lo, hi = ELEMENTS[f["y_type"]].range
        if not lo <= f["value"] <= hi:
            yield f"the value {f['value']} leaves {f['y_type']}"

    def accesses(self, c: Command) -> Iterator[Region]:
        return access.elementwise(c)

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        memory.operand(c, "y", c.vector("dims"))[...] = c.number("value")
