"""Commands that a program repeats: the words as a file has them, and all commands one after the other.

A file has a loop's block once, behind a REPEAT and the ADVANCE commands that say by how much its addresses
go on (see isa/repeat.py). Everything that looks at what a program does (order, hazards, simulator, clock,
profiles) looks at the commands of all rounds, which `expanded` gives. The other way is in folding.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import FitError, ModelError, Where
from npuflow.hw.command import Command
from npuflow.hw.encode import Words, decode, encode
from npuflow.hw.isa import HEADER_WORDS, WAIT_SLOTS, WORDS, opcodes

Ints = npt.NDArray[Any]
REPEAT, ADVANCE = "REPEAT", "ADVANCE"
DEPTH = 2                                 # how deep blocks may lie in each other
MOST = 1 << 22                            # commands of a core, of all rounds
INDEXED = 2                               # `late` of a block that is issued once, at an index
ALL_ROUNDS: Mapping[int, int] = {}        # nothing is said of what memory holds
CONSTANT: Mapping[str, int] = {}          # fields of a REPEAT whose rounds are not read


@dataclass(frozen=True)
class Rounds:
    """Where a loop's two rounds lie among a core's commands: from `first` on `length` commands, and as many
    behind them; and how many rounds there are in all. `tensors`: of all steps, by first and last byte, and by
    how much a round goes on in each: no other address changes. `loop`: its name. `read`: fields of a REPEAT
    whose rounds are read; none where they are constant. `more`: commands of a round beside these, of rounds
    of loops in it."""

    first: int
    length: int
    count: int
    tensors: tuple[tuple[int, int, int], ...] = ()
    loop: str = ""
    read: Mapping[str, int] = field(default_factory=dict)
    more: int = 0

    @property
    def size(self) -> int:
        """Commands of a round in all."""
        return self.length + self.more

    @property
    def end(self) -> int:
        """Behind both rounds."""
        return self.first + 2 * self.length


def in_all_rounds(loops: Sequence[Rounds], at: int) -> int:
    """Where a command of a core, which has two rounds of each loop, lies once all rounds are there."""
    return at + sum((one.count - 2) * one.size for one in loops if at >= one.end)


def differing(loop: str, why: str) -> FitError:
    """That two rounds of a loop are not one block, and what to do."""
    return FitError(
        f'no program of the loop "{loop}" as repeated commands: {why}',
        hint="[parse] loops = false writes loops out, step after step", code="NF-FIT-013",
    )


def has_repeats(words: Words) -> bool:
    """Whether there are commands that say how others are repeated."""
    codes = [opcodes()[name].code for name in (REPEAT, ADVANCE)]
    return bool(np.isin(words[:, 0] & 0xFF, codes).any())


def expanded(
    words: Words, core: int = 0, depth: int = DEPTH, steps: Mapping[int, int] = ALL_ROUNDS,
    asked: Ints | None = None,
) -> Words:
    """The commands of all rounds; a ModelError that names the REPEAT which says what cannot be. `depth`: how
    deep blocks may lie in each other. `steps`: what memory holds at an address where a REPEAT reads it; where
    nothing is said, the most rounds run. `asked`: which commands of a round wait for which queue, where they
    are those of a block."""
    if not has_repeats(words):
        return words
    _need(depth > 0, f"blocks lie more than {DEPTH} deep in each other", 0, core)
    found: list[Words] = []
    at, fewer = 0, np.zeros(WAIT_SLOTS, np.int64)         # commands by queue of rounds that do not run
    while at < len(words):
        repeat = decode(words[at], index=at, core=core)
        if repeat.opcode != REPEAT:
            _need(repeat.opcode != ADVANCE, "an ADVANCE that no REPEAT announces", at, core)
            found.append(later(words[at : at + 1], -fewer))
            at += 1
            continue
        first = at + 1 + repeat.number("advances")
        end, most = first + repeat.number("length"), repeat.number("count")
        _need(end <= len(words), f"its block ends behind the program's {len(words)} commands", at, core)
        constant = depth == DEPTH or not repeat.number("most")
        _need(constant, "a block in a block has a constant count", at, core)
        turns = turns_of(repeat, steps.get(repeat.number("address")), at)
        most = most if repeat.number("late") < INDEXED else 1
        block = later(words[first:end], -fewer)
        one = expanded(block, core, depth - 1)
        advances = advances_of(words, at, first, end - first, core)
        _need(most * len(one) <= MOST, f"{most} rounds of {len(one)} commands are more than {MOST} in all",
              at, core)
        waiting = waits_of(block) > 0 if asked is None else asked[first:end]
        found.append(_rounds(block, one, np.asarray(turns, np.int64), advances, waiting, (core, depth)))
        at, fewer = end, fewer + (most - len(turns)) * by_queue(one)
    return np.concatenate(found)


def turns_of(repeat: Command, steps: int | None, at: int = 0) -> range:
    """The rounds that a REPEAT issues where memory holds this number of steps, or this index; None: all
    rounds, or the last one."""
    count, most, late = (repeat.number(name) for name in ("count", "most", "late"))
    indexed = late == INDEXED
    if steps is None or not most:
        return range(count - 1 if indexed else 0, count)
    said = f"the index {steps}, at most {most} is" if indexed else f"{steps} steps, at most {most} are"
    _need(0 <= steps <= most, f"{said} possible", at, repeat.core)
    wanted = max(repeat.number("least"), -((repeat.number("before") - steps) // repeat.number("each")))
    if indexed:
        turn = min(count - 1, wanted)
        return range(turn, turn + 1)
    rounds = min(count, wanted)
    return range(count - rounds, count) if late else range(rounds)


def advances_of(
    words: Words, at: int, first: int, length: int, core: int
) -> Iterator[tuple[int, int, int]]:
    for index in range(at + 1, first):
        one = decode(words[index], index=index, core=core)
        _need(one.opcode == ADVANCE, f"{one.opcode} stands where it announces an ADVANCE", at, core)
        for command, word, step in zip(
            one.vector("commands"), one.vector("words"), one.vector("steps"), strict=True
        ):
            _need(not step or command < length, f"command {command} of a block of {length}", index, core)
            if step:
                yield command, word, step


def _rounds(
    block: Words, one: Words, turns: Ints, advances: Iterator[tuple[int, int, int]], asked: Ints,
    place: tuple[int, int],
) -> Words:
    """Rounds of a block: `turns`, how often words of each have gone on. `one`: the commands of a round;
    `asked`: which commands of the block wait for which queue."""
    count, (core, depth) = len(turns), place
    made = np.repeat(block[None], count, axis=0)
    for command, word, step in advances:
        made[:, command, word] = (made[:, command, word].astype(np.int64) + turns * step) & 0xFFFFFFFF
    waits = waits_of(block)
    every = np.where(asked, waits + np.arange(count)[:, None, None] * by_queue(one), 0)
    made[:, :, 2:HEADER_WORDS] = packed(every)
    if one is block or not count:
        return made.reshape(-1, WORDS)
    return np.concatenate([expanded(each, core, depth - 1, asked=asked) for each in made])


def waits_of(words: Words) -> Ints:
    """The counts that commands wait for, [..., queues]."""
    return np.ascontiguousarray(words[..., 2:HEADER_WORDS]).view("<u2").astype(np.int64)


def packed(waits: Ints) -> Words:
    """Counts as words."""
    return np.ascontiguousarray((waits & 0xFFFF).astype("<u2")).view("<u4")


def by_queue(words: Words) -> Ints:
    """How many of the commands each queue has."""
    return np.bincount((words[:, 0] >> 8 & 0xFF).astype(np.int64), minlength=WAIT_SLOTS)[:WAIT_SLOTS]


def _need(condition: bool, why: str, at: int, core: int) -> None:
    if not condition:
        where = Where(value=f"command {at} of core {core} ({REPEAT})")
        raise ModelError(f"commands cannot be repeated: {why}", where=where, code="NF-DECODE-010")


def later(words: Words, more: Ints) -> Words:
    """The same commands where queues have had so many more before."""
    if not more.any() or not len(words):
        return words
    made, waits = words.copy(), waits_of(words)
    made[:, 2:HEADER_WORDS] = packed(np.where(waits > 0, waits + more, 0))
    return made


def head(
    count: int, length: int, steps: Sequence[tuple[int, int, int]], core: int,
    read: Mapping[str, int] = CONSTANT,
) -> Words:
    size = opcodes()[ADVANCE].fields[0].width
    groups = [steps[at : at + size] for at in range(0, len(steps), size)]
    fields = {"count": count, "length": length, "advances": len(groups), **read}
    rows = [encode(REPEAT, fields, core=core)]
    for group in groups:
        padded = [*group, *[(0, 0, 0)] * (size - len(group))]
        commands, places, far = zip(*padded, strict=True)
        rows.append(encode(ADVANCE, {"commands": commands, "words": places, "steps": far}, core=core))
    return np.stack(rows)
