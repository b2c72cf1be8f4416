"""A place where cores meet."""

from __future__ import annotations

from collections.abc import Iterator

from npuflow.hw.command import Command
from npuflow.hw.isa import OPCODES, Terms, numbers
from npuflow.hw.region import Region
from npuflow.hw.target import Target
from npuflow.kernels.memory import SimulatedMemory
from npuflow.kernels.opcode import Simulated


@OPCODES.entry
class BarrierOpcode(Simulated):
    """Retires when every core of the bit mask has reached the barrier with this id."""

    code = 20
    name = "BARRIER"
    queue = "ANY"
    fields = numbers("id mask")

    def accesses(self, c: Command) -> Iterator[Region]:
        return iter(())

    def latency(self, c: Command, target: Target) -> Terms:
        return Terms(target.compute.command_cycles)

    def execute(self, memory: SimulatedMemory, c: Command) -> None:
        """Cores run in an order that respects it: there is nothing to compute."""
