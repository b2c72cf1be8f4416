"""One number in every place."""

from __future__ import annotations

from collections.abc import Iterator

from npuflow.engine.sim import access
from npuflow.engine.sim.memory import SimulatedMemory
from npuflow.engine.sim.opcode import Simulated
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import OPCODES, Fields, numbers, tensor
from npuflow.hw.region import Region


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
