"""The energy of an inference: counted products, operations, bytes and time, by a target's table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from npuflow.hw.energy import Energy
from npuflow.hw.isa import opcodes
from npuflow.hw.region import LOCAL
from npuflow.program.access import regions
from npuflow.program.container import Program
from npuflow.program.order import Order
from npuflow.sim.clock import Timeline

Widths = tuple[int, int, str]             # bits of both operands, and the type that they have beside integers
PICO = 1e-6                               # microjoules of a picojoule
PARTS = ("array", "vector", "local", "shared", "external", "idle")
"""What energy goes to: multiply-accumulates, operations of the vector unit, bytes of the three memories, and
the power that is drawn whatever is done."""


@dataclass
class CountedWork:
    """What commands do, counted from their words: multiply-accumulates by the widths of their operands,
    element operations of the vector unit, bytes of local, shared and external memory."""

    macs: dict[Widths, int] = field(default_factory=dict)
    operations: int = 0
    local: float = 0.0
    shared: float = 0.0
    external: float = 0.0

    def microjoules(self, table: Energy, milliseconds: float = 0.0, instances: int = 1) -> dict[str, float]:
        """By part. `milliseconds`: for which the NPU's power without work is drawn, which `instances`
        inferences share."""
        found = {
            "array": sum(count * table.mac(*widths) for widths, count in self.macs.items()) * PICO,
            "vector": self.operations * table.vector_op * PICO,
            "local": self.local * table.local_byte * PICO,
            "shared": self.shared * table.shared_byte * PICO,
            "external": self.external * table.external_byte * PICO,
            "idle": table.idle_mw * milliseconds / instances,
        }
        return {part: found[part] for part in PARTS}


def work_of(program: Program, order: Order, timeline: Timeline, chosen: Iterable[int]) -> CountedWork:
    """What some commands of a program do, by their places in its order."""
    found = CountedWork()
    for i in chosen:
        core, index = order.sequence[i]
        command = program.decoded[core][index]
        opcode = opcodes()[command.opcode]
        if opcode.queue == "TENSOR":
            count, widths = opcode.products(command)
            found.macs[widths] = found.macs.get(widths, 0) + count
        elif opcode.queue == "VECTOR":
            found.operations += opcode.operations(command)
        found.local += sum(prod(r.dims) * r.size for r in regions(command) if r.space == LOCAL)
        found.shared += float(timeline.shared[i])
        found.external += float(timeline.moved[i])
    return found


def columns(parts: Mapping[str, float]) -> dict[str, Any]:
    """The columns of a row of a profile."""
    return {"energy_uj": sum(parts.values()), "energy": dict(parts)}


def text(total: Mapping[str, Any], table: Energy) -> str:
    """A line for people: the sum, its parts, most first, and where the figures come from."""
    parts = sorted(((part, uj) for part, uj in total["energy"].items() if uj), key=lambda one: -one[1])
    whole = max(total["energy_uj"], 1e-30)
    shares = ", ".join(f"{part} {uj / whole:.1%}" for part, uj in parts)
    source = f" ({table.source})" if table.source else ""
    return f"energy {total['energy_uj']:,.3f} uJ an inference: {shares}{source}"
