"""Commands that a program repeats: the words as a file has them, and all commands one after the other.

A file has a loop's block once, behind a REPEAT and the ADVANCE commands that say by how much its addresses go on
(see isa/repeat.py). Everything that looks at what a program does (order, hazards, simulator, clock, profiles)
looks at the commands of all rounds, which `expanded` gives. `folded` is the other way: it finds the block and the
steps of its words in two rounds that stand one after the other, and refuses where one is not the other with
addresses that went on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from npuflow.base.errors import ModelError, Where
from npuflow.hw.encode import Words, decode, encode, layout
from npuflow.hw.isa import HEADER_WORDS, WAIT_SLOTS, WORDS, by_code, opcodes

REPEAT, ADVANCE = "REPEAT", "ADVANCE"
MOST = 1 << 22                            # commands of a core, of all rounds
_GOING = {"LOAD": ("external",), "STORE": ("external",), "BARRIER": ("id",)}


class RoundsDifferError(Exception):
    """Why two rounds are not one block."""


@dataclass(frozen=True)
class Rounds:
    """Where a loop's two rounds lie among a core's commands: from `first` on `length` commands, and as many
    behind them; and how many rounds there are in all. `tensors`: of all steps, by first and last byte, and by
    how much a round goes on in each: no other address changes."""

    first: int
    length: int
    count: int
    tensors: tuple[tuple[int, int, int], ...] = ()


def has_repeats(words: Words) -> bool:
    return bool((words[:, 0] & 0xFF == opcodes()[REPEAT].code).any())


def expanded(words: Words, core: int = 0) -> Words:
    """The commands of all rounds; a ModelError that names the REPEAT which says what cannot be."""
    if not has_repeats(words):
        return words
    found: list[Words] = []
    total = at = 0
    while at < len(words):
        repeat = decode(words[at], index=at, core=core)
        if repeat.opcode != REPEAT:
            if repeat.opcode == ADVANCE:
                raise _fault("an ADVANCE that no REPEAT announces", at, core)
            found.append(words[at : at + 1])
            at, total = at + 1, total + 1
            continue
        first = at + 1 + repeat.number("advances")
        end, count = first + repeat.number("length"), repeat.number("count")
        if end > len(words):
            raise _fault(f"its block ends behind the program's {len(words)} commands", at, core)
        total += count * (end - first)
        if total > MOST:
            raise _fault(f"{count} rounds of {end - first} commands are more than {MOST} in all", at, core)
        found.append(_rounds(words[first:end], count, _advances(words, at, first, end - first, core), at, core))
        at = end
    return np.concatenate(found)


def _advances(
    words: Words, at: int, first: int, length: int, core: int
) -> Iterator[tuple[int, int, int]]:
    for index in range(at + 1, first):
        one = decode(words[index], index=index, core=core)
        if one.opcode != ADVANCE:
            raise _fault(f"{one.opcode} stands where it announces an ADVANCE", at, core)
        for command, word, step in zip(
            one.vector("commands"), one.vector("words"), one.vector("steps"), strict=True
        ):
            if step and command >= length:
                raise _fault(f"command {command} of a block of {length}", index, core)
            if step:
                yield command, word, step


def _rounds(
    block: Words, count: int, advances: Iterator[tuple[int, int, int]], at: int, core: int
) -> Words:
    inner = {code.name for raw in block[:, 0] & 0xFF if (code := by_code(int(raw))) is not None}
    if inner & {REPEAT, ADVANCE}:
        raise _fault("a REPEAT in its block", at, core)
    made = np.repeat(block[None], count, axis=0)
    turns = np.arange(count, dtype=np.int64)
    for command, word, step in advances:
        made[:, command, word] = (made[:, command, word].astype(np.int64) + turns * step) & 0xFFFFFFFF
    waits = np.ascontiguousarray(made[:, :, 2:HEADER_WORDS]).view("<u2").astype(np.int64)
    waits += turns[:, None, None] * _by_queue(block)
    made[:, :, 2:HEADER_WORDS] = np.ascontiguousarray((waits & 0xFFFF).astype("<u2")).view("<u4")
    return made.reshape(-1, WORDS)


def _by_queue(words: Words) -> np.ndarray:
    """How many of the commands each queue has."""
    return np.bincount((words[:, 0] >> 8 & 0xFF).astype(np.int64), minlength=WAIT_SLOTS)[:WAIT_SLOTS]


def _fault(message: str, at: int, core: int) -> ModelError:
    where = Where(value=f"command {at} of core {core} ({REPEAT})")
    return ModelError(message, where=where, code="NF-DECODE-010")


def folded(words: Words, loops: Sequence[Rounds], core: int = 0) -> Words:
    """The commands with each loop's two rounds as a block; RoundsDifferError where they are not alike.
    `loops` in the order of the commands."""
    found: list[Words] = []
    done, more = 0, np.zeros(WAIT_SLOTS, np.int64)        # commands by queue of rounds that are not here
    for loop in loops:
        if not loop.length:
            continue
        second = loop.first + loop.length
        found.append(_later(words[done : loop.first], more))
        block, steps = _block(words, loop)
        own = _by_queue(words[loop.first : second])
        found += [_head(loop, steps, core), _later(block, more)]
        done, more = second + loop.length, more + (loop.count - 2) * own
    found.append(_later(words[done:], more))
    return np.concatenate(found)


def _later(words: Words, more: np.ndarray) -> Words:
    """The same commands where queues have had so many more before."""
    if not more.any() or not len(words):
        return words
    made = words.copy()
    waits = np.ascontiguousarray(made[:, 2:HEADER_WORDS]).view("<u2").astype(np.int64) + more
    made[:, 2:HEADER_WORDS] = np.ascontiguousarray((waits & 0xFFFF).astype("<u2")).view("<u4")
    return made


def _block(words: Words, loop: Rounds) -> tuple[Words, list[tuple[int, int, int]]]:
    """The first round with waits that hold for all rounds, and (command, word, step) of what goes on."""
    second = loop.first + loop.length
    a, b = words[loop.first : second], words[second : second + loop.length]
    if (a[:, 0] != b[:, 0]).any():
        raise RoundsDifferError("other commands")
    before, own = _by_queue(words[: loop.first]), _by_queue(a)
    waits = [np.ascontiguousarray(w[:, 2:HEADER_WORDS]).view("<u2").astype(np.int64) for w in (a, b)]
    none = np.iinfo(np.int64).min
    relative = [
        np.where(w > 0, w - start, none) for w, start in zip(waits, (before, before + own), strict=True)
    ]
    wanted = np.maximum(*relative)
    asked = np.where(wanted > none, wanted + before, 0) & 0xFFFF
    block = a.copy()
    block[:, 2:HEADER_WORDS] = np.ascontiguousarray(asked.astype("<u2")).view("<u4")
    return block, list(_going(a, b, loop.tensors))


def _going(
    a: Words, b: Words, tensors: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[int, int, int]]:
    for command, word in zip(*np.nonzero(a[:, HEADER_WORDS:] != b[:, HEADER_WORDS:]), strict=True):
        at, opcode = int(word) + HEADER_WORDS, by_code(int(a[command, 0] & 0xFF))
        assert opcode is not None
        names = {place: entry.name for entry, place in layout(opcode.name) if entry.width == 1}
        if names.get(at) not in _GOING.get(opcode.name, ()):
            raise RoundsDifferError(f"{opcode.name} {names.get(at, f'word {at}')}")
        step = (int(b[command, at]) - int(a[command, at]) + (1 << 31)) % (1 << 32) - (1 << 31)
        place = int(a[command, at])
        if opcode.transfers and not any(lo <= place < hi and step == far for lo, hi, far in tensors):
            raise RoundsDifferError(f"{opcode.name} goes from {place} to {place + step}")
        yield int(command), at, step


def _head(loop: Rounds, steps: Sequence[tuple[int, int, int]], core: int) -> Words:
    size = len(opcodes()[ADVANCE].fields) and opcodes()[ADVANCE].fields[0].width
    groups = [steps[at : at + size] for at in range(0, len(steps), size)]
    fields = {"count": loop.count, "length": loop.length, "advances": len(groups)}
    rows = [encode(REPEAT, fields, core=core)]
    for group in groups:
        padded = [*group, *[(0, 0, 0)] * (size - len(group))]
        commands, places, far = zip(*padded, strict=True)
        rows.append(encode(ADVANCE, {"commands": commands, "words": places, "steps": far}, core=core))
    return np.stack(rows)
