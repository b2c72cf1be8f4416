"""What the code generator writes for one core: commands, constants, where values lie, and taps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Buffer
from npuflow.ir.space import elements
from npuflow.program.codegen.commands import CommandList
from npuflow.program.codegen.consts import ConstPool
from npuflow.program.codegen.data import DataStorage
from npuflow.program.taps import Tap
from npuflow.schedule.jobs import Place, TileRun


class Behind(NamedTuple):
    """What the vector unit does behind the array for a tile: opcodes with their fields, the places that their
    pointers fall into, and what is made."""

    commands: list[tuple[str, dict[str, object]]]
    places: Sequence[Place]
    outputs: Sequence[Buffer]


@dataclass(frozen=True)
class CoreProgram:
    """One core's commands; the constants and external memory are those of all cores.
    `made`: values that nodes make; `behind`: by tile, what the array has left to the vector unit."""

    commands: CommandList
    consts: ConstPool
    data: DataStorage
    numerics: Numerics
    made: Collection[str]
    taps: list[Tap] = field(default_factory=list)
    behind: dict[TileRun, Behind] = field(default_factory=dict)

    def makes(self, value: str) -> bool:
        return value in self.made

    def tap(self, value: str, buffer: Buffer, since: int) -> None:
        """Note where a box lies after the last command since number `since` that wrote to it. All that write
        tensors run in one queue, in order: after the last of them the box is complete."""
        if not elements(buffer.box):
            return
        size = [b - a for a, b in buffer.box]
        end = buffer.address + sum((n - 1) * s for n, s in zip(size, buffer.strides, strict=True)) + 1
        for index in range(len(self.commands.commands) - 1, since - 1, -1):
            at = self.commands.commands[index].values.get("y")
            if isinstance(at, int) and buffer.address <= at < end:
                self.taps.append(Tap(index, value, buffer.address, buffer.box, buffer.strides))
                return
