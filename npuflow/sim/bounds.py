"""Every byte that a command names must lie in its memory; tensors lie on multiples of their element size."""

from __future__ import annotations

from npuflow.base.errors import ModelError, Where
from npuflow.hw.isa import opcodes
from npuflow.program.access import named
from npuflow.program.container import Program


def check_bounds(program: Program, core: int, index: int) -> None:
    """Every byte that a command names lies in its memory, and tensors lie on
    multiples of their element size."""
    command = program.decoded[core][index]
    sizes = {
        "LOCAL": int(program.meta["local_bytes"]),
        "DATA": int(program.meta["data_bytes"]),
        "CONST": len(program.const),
    }
    where = Where(value=f"command {index} of core {core} ({command.opcode})")
    for region in named(command):
        lo, hi = region.span
        if lo < 0 or hi > sizes[region.space]:
            raise ModelError(
                f"{command.opcode}.{region.name} spans bytes {lo}..{hi} of a {region.space} memory of "
                f"{sizes[region.space]}",
                where=where,
                code="NF-SIM-001",
            )
        if not region.aligned and not opcodes()[command.opcode].copies:
            raise ModelError(
                f"{command.opcode}.{region.name} is not aligned to {region.size} bytes", where=where,
                code="NF-SIM-002",
            )
        if region.write and not region.distinct:
            raise ModelError(
                f"{command.opcode}.{region.name} writes a byte twice", where=where, code="NF-SIM-003",
            )
