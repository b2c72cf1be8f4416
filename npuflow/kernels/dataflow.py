"""What the words prove about local memory: which operands are constants, which sums
live only between two commands.

One pass over the execution order keeps, per core, who defined every byte. A read that lies wholly in
what one LOAD from CONST wrote has known bytes; a sum that only accumulator operands of exactly its bytes
ever read needs no memory at all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.command import Command
from npuflow.hw.isa import opcodes
from npuflow.hw.region import CONST, LOCAL, Region
from npuflow.program.access import regions
from npuflow.program.container import Program
from npuflow.program.order import Order

Bytes = npt.NDArray[np.uint8]


@dataclass(eq=False)
class Definition:
    """Bytes [lo, hi) of a core's local memory as one command wrote them. `real`:
    somebody needs them in memory."""

    kind: str                        # "const", "sum" or ""
    lo: int
    hi: int
    position: int
    content: Bytes | None = None     # of a const: its bytes, from `base` on
    base: int = 0
    dtype: str = ""                  # of a sum
    real: bool = False
    last: int = 0                    # last command that uses a sum


@dataclass
class CommandFacts:
    """By position in the order: constant operands by name, the sum a command works
    on, LOADs that nobody needs."""

    consts: dict[int, dict[str, Definition]] = field(default_factory=dict)
    sums: dict[int, Definition] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)

    def materialise(self, positions: list[int]) -> bool:
        """Put in memory what these commands read or accumulate; True if anything was not there yet."""
        needed = {d.position for i in positions for d in self.consts.get(i, {}).values()}
        sums = {self.sums[i].position for i in positions if i in self.sums}
        changed = bool(needed & self.idle) or bool(sums)
        self.idle -= needed
        self.sums = {i: d for i, d in self.sums.items() if d.position not in sums}
        return changed


def facts_of(program: Program, order: Order) -> CommandFacts:
    """The facts of a program; they hold for every input."""
    facts, defined = CommandFacts(), []
    cores = [_Spans() for _ in program.commands]
    const = np.frombuffer(program.const, np.uint8)
    for i, (core, index) in enumerate(order.sequence):
        command = program.decoded[core][index]
        spans, found = cores[core], regions(command)
        for region in found:
            if region.space == LOCAL and not region.write:
                _read(facts, spans, region, command, i)
        for region in found:
            if region.space == LOCAL and region.write:
                made = _write(facts, spans, region, command, i, const)
                if made is not None:
                    defined.append(made)
    for definition in defined:
        if definition.kind == "const" and not definition.real:
            facts.idle.add(definition.position)
    facts.sums = {i: d for i, d in facts.sums.items() if not d.real}
    return facts


def _read(facts: CommandFacts, spans: _Spans, region: Region, command: Command, i: int) -> None:
    lo, hi = region.span
    owners = spans.overlapping(lo, hi)
    known = len(owners) == 1 and owners[0][0] <= lo and hi <= owners[0][1]
    # copies take bytes from memory, whoever knows what these are
    if known and not opcodes()[command.opcode].copies:
        owner = owners[0][2]
        if owner.kind == "const":
            facts.consts.setdefault(i, {})[region.name] = owner
            return
        if (
            owner.kind == "sum" and region.name == "acc" and (owner.lo, owner.hi) == (lo, hi)
            and owner.dtype == command.text("acc_type")
        ):
            facts.sums[i] = owner
            owner.last = i
            return
    for _, _, owner in owners:
        owner.real = True


def _write(
    facts: CommandFacts, spans: _Spans, region: Region, command: Command, i: int, const: Bytes
) -> Definition | None:
    lo, hi = region.span
    if region.name == "acc" and i in facts.sums:
        return None                                    # accumulation into the same sum
    dense = not region.squeezed().dims
    if not dense:
        for _, _, owner in spans.overlapping(lo, hi):
            owner.real = True
        made = Definition("", lo, hi, i, real=True)
    elif command.opcode == "LOAD" and command.text("space") == CONST:
        made = Definition("const", lo, hi, i, *_loaded(command, region, const))
    elif opcodes()[command.opcode].pointers("sum") and not command.number("accumulate"):
        made = Definition("sum", lo, hi, i, dtype=command.text("acc_type"), last=i)
        facts.sums[i] = made
    else:
        made = Definition("", lo, hi, i, real=True)
    spans.put(lo, hi, made)
    return made


def _loaded(command: Command, local: Region, const: Bytes) -> tuple[Bytes, int]:
    """The bytes that a LOAD from CONST leaves in local memory, and the (64-byte
    aligned) address of the first."""
    lo, hi = local.span
    base = lo // 64 * 64
    content = np.zeros((hi - base + 63) // 64 * 64 + 64, np.uint8)
    dtype, dims = f"<u{local.size}", local.dims
    source = np.ndarray(
        dims,
        dtype,
        buffer=const,
        offset=command.number("external"),
        strides=command.vector("external_strides"),
    )
    np.ndarray(dims, dtype, buffer=content, offset=local.address - base, strides=local.strides)[...] = source
    return content, base


class _Spans:
    """Disjoint intervals with their definitions, sorted."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.items: list[tuple[int, int, Definition]] = []

    def _range(self, lo: int, hi: int) -> tuple[int, int]:
        first = bisect_right(self.starts, lo) - 1
        if first < 0 or self.items[first][1] <= lo:
            first += 1
        return first, bisect_left(self.starts, hi)

    def overlapping(self, lo: int, hi: int) -> list[tuple[int, int, Definition]]:
        first, last = self._range(lo, hi)
        return self.items[first:last]

    def put(self, lo: int, hi: int, definition: Definition) -> None:
        first, last = self._range(lo, hi)
        fresh: list[tuple[int, int, Any]] = [(lo, hi, definition)]
        if first < last:
            a, b, owner = self.items[first]
            if a < lo:
                fresh.insert(0, (a, lo, owner))
            a, b, owner = self.items[last - 1]
            if b > hi:
                fresh.append((hi, b, owner))
        self.items[first:last] = fresh
        self.starts[first:last] = [item[0] for item in fresh]
