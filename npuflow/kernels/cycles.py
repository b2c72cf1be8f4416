"""What one command costs on its engine, term by term, from its words and the target's constants alone.

What an opcode costs is in its file of isa; here is what several share.
"""

from __future__ import annotations

from math import ceil, prod

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import Terms, opcodes
from npuflow.hw.region import LOCAL, Region
from npuflow.hw.target import Memory, Target
from npuflow.program.access import regions


def terms_of(command: Command, target: Target) -> Terms:
    """Cycles of a command on its engine (of a transfer: before its bytes move)."""
    return opcodes()[command.opcode].latency(command, target)


def widths(command: Command, streamed: str, held: str) -> tuple[int, int, str]:
    """Bits of the operand that streams through the array and of the one that it holds, and the type if they
    are floats, or what it holds is sparse or in blocks."""
    one, other = (ELEMENTS[command.text(f"{name}_type")] for name in (streamed, held))
    if other.block is not None:
        return one.bits, other.bits, other.name
    special = one.name if one.kind == "float" else other.name if other.sparse is not None else ""
    return one.bits, other.bits, special


def on_array(target: Target, work: int, passes: int, macs: int, bits: tuple[int, int, str]) -> Terms:
    """A command of the array: cycles of its passes, their number, and the multiply-accumulates asked for;
    `bits` of the operand that streams through it and of the one that it holds."""
    compute = target.compute
    slow = compute.slowness(*bits)
    useful = macs / compute.macs * float(slow)
    reload = compute.paced(passes * compute.pass_cycles, slow)
    edge = compute.paced(work, slow) - useful
    return Terms(compute.command_cycles, fill=compute.fill_cycles, reload=reload, array=useful, edge=edge)


def rows_of(command: Command) -> tuple[int, int]:
    """(contiguous rows, bytes of each) on the external side of a LOAD or STORE."""
    found = _external(command).squeezed()
    # a broadcast row is moved as often as it is read
    total = prod(command.vector("dims")) * command.number("element")
    return max(1, total // found.size), found.size


def burst_bytes(command: Command, target: Target) -> int:
    """What a transfer costs on external memory: every row in whole bursts."""
    rows, size = opcodes()[command.opcode].external_rows(command)
    return rows * ceil(size / target.memory.burst) * target.memory.burst


def in_shared(command: Command, memory: Memory) -> bool:
    """Whether a transfer's external side lies wholly in the memory that all cores share on the chip."""
    region = _external(command)
    return region.space == "DATA" and region.span[1] <= memory.shared_bytes


def _external(command: Command) -> Region:
    return next(r for r in regions(command) if r.space != LOCAL)


def bank_bytes(command: Command, memory: Memory) -> dict[int, float]:
    """Bytes of local memory that a command reads or writes, by bank; an operand's
    bytes lie evenly over its span."""
    size = memory.local_bytes // memory.local_banks
    found: dict[int, float] = {}
    for region in regions(command):
        if region.space != LOCAL:
            continue
        lo, hi = region.span
        share = prod(region.dims) * region.size / (hi - lo)
        for bank in range(lo // size, (hi - 1) // size + 1):
            part = min(hi, (bank + 1) * size) - max(lo, bank * size)
            found[bank] = found.get(bank, 0.0) + part * share
    return found
