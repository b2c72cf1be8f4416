"""What the code generator writes for one core: commands, constants, where values lie, and taps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Buffer
from npuflow.ir.space import elements
from npuflow.program.codegen.commands import CommandList
from npuflow.program.codegen.consts import ConstPool
from npuflow.program.codegen.data import DataStorage
from npuflow.program.taps import Tap


@dataclass(frozen=True)
class CoreProgram:
    """One core's commands; the constants and external memory are those of all cores.
    `made`: values that nodes make."""

    commands: CommandList
    consts: ConstPool
    data: DataStorage
    numerics: Numerics
    made: Collection[str]
    taps: list[Tap] = field(default_factory=list)

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
