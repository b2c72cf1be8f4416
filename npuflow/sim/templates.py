"""The stored commands of a core as items: a command that is issued once, or the rounds of a block.

An item has the commands of one round, blocks in it written out, with what changes from round to round: waits
by the commands of a round, addresses by the steps of ADVANCE commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuflow.hw.command import NONE, Command
from npuflow.hw.encode import Words, decode, decode_all, layout
from npuflow.hw.isa import WAIT_SLOTS, opcodes
from npuflow.hw.region import CONST, Region
from npuflow.program.access import regions
from npuflow.program.repeats import ADVANCE, INDEXED, REPEAT, Ints, advances_of, by_queue, turns_of, waits_of

HALF = 1 << 15


class Unproved(Exception):
    """The form of a program is one that the proof does not handle, or something stands against it."""


@dataclass(frozen=True)
class MovingRegion:
    """Bytes that a command touches: in round 0, and by how much the address goes on."""

    region: Region
    step: int

    def at(self, turn: int) -> Region:
        r = self.region
        address = r.address + turn * self.step
        return Region(r.name, r.space, r.write, address, r.size, r.dims, r.strides)


@dataclass(frozen=True)
class StoredItem:
    """`waits` [commands, queues]: of round 0, as the file has them, signed; `asked`: where there are any;
    `inner`: by how much they are higher in a round of a block in the block; `nested`: commands of such.
    `own`: commands of a round, by queue; `count`: the most rounds, or 1."""

    at: int
    commands: tuple[Command, ...]
    waits: Ints
    asked: Ints
    inner: Ints
    nested: Ints
    queues: Ints
    own: Ints
    touched: tuple[tuple[MovingRegion, ...], ...]
    repeat: Command | None = None

    @property
    def count(self) -> int:
        return 1 if self.repeat is None else self.repeat.number("count")

    def turns(self, steps: int | None) -> range:
        """The rounds that run where memory holds this number."""
        return range(1) if self.repeat is None else turns_of(self.repeat, steps, self.at)


def items_of(words: Words, core: int) -> tuple[StoredItem, ...]:
    """All items of a core, in order; Unproved for forms that are not handled."""
    found, at = list[StoredItem](), 0
    while at < len(words):
        head = decode(words[at], index=at, core=core)
        if head.opcode != REPEAT:
            found.append(_item(at, words[at : at + 1], np.zeros((1, WAIT_SLOTS), np.int64), {}))
            at += 1
            continue
        if head.number("most") and head.number("late") == INDEXED:
            raise Unproved(f"command {at} is a block that is issued at an index")
        first = at + 1 + head.number("advances")
        end = first + head.number("length")
        rows, inner, source = _written_out(words[first:end], core)
        steps: dict[tuple[int, int], int] = {}
        for command, word, step in advances_of(words, at, first, end - first, core):
            for row in _rows_of(source, command, at):
                steps[int(row), word] = steps.get((int(row), word), 0) + step
        found.append(_item(at, rows, inner, steps, head, source))
        at = end
    return tuple(found)


def _rows_of(source: Ints, command: int, at: int) -> Ints:
    rows = np.flatnonzero(source == command)
    if not len(rows):
        raise Unproved(f"the block at command {at} changes how often a block in it is repeated")
    return rows


def _written_out(block: Words, core: int) -> tuple[Words, Ints, Ints]:
    """One round with blocks in it written out: the words, without waits that went on; by how much these did;
    and which command of the block each is."""
    rows, inner, source, at = list[Words](), list[Ints](), list[int](), 0
    while at < len(block):
        head = decode(block[at], index=at, core=core)
        if head.opcode != REPEAT:
            rows.append(block[at])
            inner.append(np.zeros(WAIT_SLOTS, np.int64))
            source.append(at)
            at += 1
            continue
        first = at + 1 + head.number("advances")
        end = first + head.number("length")
        own = by_queue(block[first:end])
        for turn in range(head.number("count")):
            made = block[first:end].astype(np.int64)
            for command, word, step in advances_of(block, at, first, end - first, core):
                made[command, word] = (made[command, word] + turn * step) & 0xFFFFFFFF
            rows.extend(made.astype(block.dtype))
            inner.extend([turn * own] * (end - first))
            source.extend(range(first, end))
        at = end
    return np.stack(rows), np.stack(inner), np.array(source)


def _item(
    at: int, rows: Words, inner: Ints, steps: Mapping[tuple[int, int], int], repeat: Command | None = None,
    source: Ints | None = None,
) -> StoredItem:
    commands = decode_all(rows, alike=True)
    count = 1 if repeat is None else repeat.number("count")
    for (row, word), step in steps.items():
        _check_step(commands[row], int(rows[row, word]), word, step, count)
    next_rows = rows.astype(np.int64)
    for (row, word), step in steps.items():
        next_rows[row, word] += step
    moved = sorted({row for row, _ in steps}) if count > 1 else []
    later = dict(zip(moved, decode_all(next_rows[moved].astype(rows.dtype)), strict=True)) if moved else {}
    touched = tuple(_touched(one, later.get(row)) for row, one in enumerate(commands))
    waits = waits_of(rows)
    nested = np.zeros(len(rows), bool)
    if source is not None:
        nested = np.isin(source, source[inner.any(1)])
    signed = np.where(waits >= HALF, waits - 2 * HALF, waits)
    queues = (rows[:, 0] >> 8 & 0xFF).astype(np.int64)
    own = by_queue(rows)
    return StoredItem(at, commands, signed, waits != 0, inner, nested, queues, own, touched, repeat)


def _check_step(command: Command, base: int, word: int, step: int, count: int) -> None:
    """Only addresses go on, and none passes the end of 32 bits or what says that there is none."""
    opcode = opcodes()[command.opcode]
    names = {*opcode.pointers("read", "write", "sum"), *(("external", "local") if opcode.transfers else ())}
    name = next((entry.name for entry, place in layout(command.opcode)
                 if entry.width == 1 and place == word), f"word {word}")
    if command.opcode in (REPEAT, ADVANCE) or name not in names:
        raise Unproved(f"{command.opcode}.{name} goes on from round to round")
    if base == NONE or not 0 <= base + (count - 1) * step < NONE:
        raise Unproved(f"{command.opcode}.{name} goes on from {base} beyond 32 bits")


def _touched(command: Command, later: Command | None) -> tuple[MovingRegion, ...]:
    if command.opcode == "BARRIER" or (command.opcode == "LOAD" and command.number("mask")):
        raise Unproved(f"{command.opcode} joins cores")
    found = [r for r in regions(command) if r.space != CONST]
    if later is None:
        return tuple(MovingRegion(r, 0) for r in found)
    others = [r for r in regions(later) if r.space != CONST]
    if [_form(r) for r in found] != [_form(r) for r in others]:
        raise Unproved(f"{command.opcode} touches regions of another form in the next round")
    return tuple(MovingRegion(a, b.address - a.address) for a, b in zip(found, others, strict=True))


def _form(r: Region) -> tuple[object, ...]:
    return r.name, r.space, r.write, r.size, r.dims, r.strides


def numbers_of(items: Sequence[StoredItem]) -> list[tuple[Mapping[int, int], tuple[range, ...]]]:
    """Which rounds of each item run: for every number that the blocks may read, one of each kind."""
    heads = [i.repeat for i in items if i.repeat is not None and i.repeat.number("most")]
    if len({(h.number("address"), h.number("most")) for h in heads}) > 1:
        raise Unproved("blocks read more than one number")
    if not heads:
        return [({}, tuple(i.turns(None) for i in items))]
    address, most = heads[0].number("address"), heads[0].number("most")
    found: dict[tuple[range, ...], int] = {}
    for number in range(most + 1):
        found.setdefault(tuple(i.turns(number) for i in items), number)
    return [({address: number}, turns) for turns, number in found.items()]
