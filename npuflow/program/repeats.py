"""Commands that a program repeats: the words as a file has them, and all commands one after the other.

A file has a loop's block once, behind a REPEAT and the ADVANCE commands that say by how much its addresses
go on (see isa/repeat.py). Everything that looks at what a program does (order, hazards, simulator, clock,
profiles) looks at the commands of all rounds, which `expanded` gives. `folded` is the other way: it finds the
block and the steps of its words in two rounds that stand one after the other, and refuses where one is not
the other with addresses that went on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import FitError, ModelError, Where
from npuflow.hw.command import Command
from npuflow.hw.encode import Words, decode, encode, layout
from npuflow.hw.isa import HEADER_WORDS, WAIT_SLOTS, WORDS, by_code, opcodes

Ints = npt.NDArray[Any]
REPEAT, ADVANCE = "REPEAT", "ADVANCE"
DEPTH = 2                                 # how deep blocks may lie in each other
MOST = 1 << 22                            # commands of a core, of all rounds
FAR = 1 << 14                             # counts from which on a 0 is no longer surely over
LAG = 4                                   # rounds behind, of a queue that a command does not wait for
SAVED = 8                                 # commands that a block must save
INDEXED = 2                               # `late` of a block that is issued once, at an index
LONGEST = 512                             # commands of a block of tiles
ALL_ROUNDS: Mapping[int, int] = {}        # nothing is said of what memory holds
CONSTANT: Mapping[str, int] = {}          # fields of a REPEAT whose rounds are not read
_GOING = {"LOAD": ("external",), "STORE": ("external",), "BARRIER": ("id",)}


@dataclass(frozen=True)
class Rounds:
    """Where a loop's two rounds lie among a core's commands: from `first` on `length` commands, and as many
    behind them; and how many rounds there are in all. `tensors`: of all steps, by first and last byte, and by
    how much a round goes on in each: no other address changes. `loop`: its name. `read`: fields of a REPEAT
    whose rounds are read; none where they are constant."""

    first: int
    length: int
    count: int
    tensors: tuple[tuple[int, int, int], ...] = ()
    loop: str = ""
    read: Mapping[str, int] = field(default_factory=dict)


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
    words: Words, core: int = 0, depth: int = DEPTH, steps: Mapping[int, int] = ALL_ROUNDS
) -> Words:
    """The commands of all rounds; a ModelError that names the REPEAT which says what cannot be. `depth`: how
    deep blocks may lie in each other. `steps`: what memory holds at an address where a REPEAT reads it; where
    nothing is said, the most rounds run."""
    if not has_repeats(words):
        return words
    _need(depth > 0, f"blocks lie more than {DEPTH} deep in each other", 0, core)
    found: list[Words] = []
    at, fewer = 0, np.zeros(WAIT_SLOTS, np.int64)         # commands by queue of rounds that do not run
    while at < len(words):
        repeat = decode(words[at], index=at, core=core)
        if repeat.opcode != REPEAT:
            _need(repeat.opcode != ADVANCE, "an ADVANCE that no REPEAT announces", at, core)
            found.append(_later(words[at : at + 1], -fewer))
            at += 1
            continue
        first = at + 1 + repeat.number("advances")
        end, most = first + repeat.number("length"), repeat.number("count")
        _need(end <= len(words), f"its block ends behind the program's {len(words)} commands", at, core)
        constant = depth == DEPTH or not repeat.number("most")
        _need(constant, "a block in a block has a constant count", at, core)
        turns = turns_of(repeat, steps.get(repeat.number("address")), at)
        most = most if repeat.number("late") < INDEXED else 1
        block = _later(words[first:end], -fewer)
        one = expanded(block, core, depth - 1)
        advances = _advances(words, at, first, end - first, core)
        _need(most * len(one) <= MOST, f"{most} rounds of {len(one)} commands are more than {MOST} in all",
              at, core)
        found.append(_rounds(block, one, np.asarray(turns, np.int64), advances, (core, depth)))
        at, fewer = end, fewer + (most - len(turns)) * _by_queue(one)
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


def _advances(
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
    block: Words, one: Words, turns: Ints, advances: Iterator[tuple[int, int, int]], place: tuple[int, int]
) -> Words:
    """Rounds of a block: `turns`, how often words of each have gone on. `one`: the commands of a round."""
    count, (core, depth) = len(turns), place
    made = np.repeat(block[None], count, axis=0)
    for command, word, step in advances:
        made[:, command, word] = (made[:, command, word].astype(np.int64) + turns * step) & 0xFFFFFFFF
    waits = waits_of(block)
    every = np.where(waits > 0, waits + np.arange(count)[:, None, None] * _by_queue(one), 0)
    made[:, :, 2:HEADER_WORDS] = packed(every)
    if one is block or not count:
        return made.reshape(-1, WORDS)
    return np.concatenate([expanded(each, core, depth - 1) for each in made])


def waits_of(words: Words) -> Ints:
    """The counts that commands wait for, [..., queues]."""
    return np.ascontiguousarray(words[..., 2:HEADER_WORDS]).view("<u2").astype(np.int64)


def packed(waits: Ints) -> Words:
    """Counts as words."""
    return np.ascontiguousarray((waits & 0xFFFF).astype("<u2")).view("<u4")


def _by_queue(words: Words) -> Ints:
    """How many of the commands each queue has."""
    return np.bincount((words[:, 0] >> 8 & 0xFF).astype(np.int64), minlength=WAIT_SLOTS)[:WAIT_SLOTS]


def _need(condition: bool, why: str, at: int, core: int) -> None:
    if not condition:
        where = Where(value=f"command {at} of core {core} ({REPEAT})")
        raise ModelError(f"commands cannot be repeated: {why}", where=where, code="NF-DECODE-010")


def folded(words: Words, loops: Sequence[Rounds], core: int = 0) -> Words:
    """The commands with each loop's two rounds as a block; a FitError where they are not alike.
    `loops` in the order of the commands."""
    if not any(loop.length for loop in loops):
        return words
    found: list[Words] = []
    done, more = 0, np.zeros(WAIT_SLOTS, np.int64)        # commands by queue of rounds that are not here
    for loop in (one for one in loops if one.length):
        second = loop.first + loop.length
        found.append(_past(tiles_folded(_later(words[done : loop.first], more), core), more, core))
        own = _by_queue(words[loop.first : second])
        if loop.count * loop.length > MOST:
            raise FitError(
                f'the loop "{loop.loop}" has {loop.count} rounds of {loop.length} commands, more than {MOST}',
                hint="fewer steps a run; [model] state keeps what is carried from run to run",
                code="NF-FIT-014",
            )
        found += _block(words, loop, more, core)
        done, more = second + loop.length, more + (loop.count - 2) * own
    found.append(_past(tiles_folded(_later(words[done:], more), core), more, core))
    return np.concatenate(found)


def _later(words: Words, more: Ints) -> Words:
    """The same commands where queues have had so many more before."""
    if not more.any() or not len(words):
        return words
    made, waits = words.copy(), waits_of(words)
    made[:, 2:HEADER_WORDS] = packed(np.where(waits > 0, waits + more, 0))
    return made


def _past(words: Words, before: Ints, core: int) -> Words:
    """The same where a count of 0 would be taken for one that is yet to come, since queues have had so many
    before: a command that waits for nothing of a queue waits for what is long done, in blocks for what was
    some rounds behind."""
    far, codes = before >= FAR, [opcodes()[name].code for name in (REPEAT, ADVANCE)]
    if not far.any() or not len(words):
        return words
    made, at, had = words.copy(), 0, before.copy()
    while at < len(words):
        end, count = at + 1, 1
        if words[at, 0] & 0xFF == codes[0]:
            head = decode(words[at])
            at += 1 + head.number("advances")
            end, count = at + head.number("length"), head.number("count")
        own, waits = _by_queue(expanded(words[at:end], core)), waits_of(words[at:end])
        done = np.where(own > 0, had - LAG * own, before) if count > 1 else before
        lacking = (waits == 0) & far & ~np.isin(words[at:end, 0] & 0xFF, codes)[:, None]
        made[at:end, 2:HEADER_WORDS] = packed(np.where(lacking, done - (done & 0xFFFF == 0), waits))
        at, had = end, had + count * own
    return made


def _block(words: Words, loop: Rounds, more: Ints, core: int) -> list[Words]:
    """All rounds of a loop: a REPEAT and the first round, with waits that hold for all. `more`: commands that
    queues have had beside those that are here."""
    second = loop.first + loop.length
    a, b = words[loop.first : second], words[second : second + loop.length]
    if (a[:, 0] != b[:, 0]).any():
        raise differing(loop.loop, "a round has other commands than the one before it")
    own, steps = _by_queue(a), list(_going(a, b, loop))
    wanted, before = _wanted(words, loop), _by_queue(words[: loop.first])
    start, needed = before + more, wanted > np.iinfo(np.int64).min
    # where counts pass 2^16, a count of 0 would be taken for one that is yet to come
    waits = needed | (start + loop.count * own >= FAR)
    behind = start - LAG * own
    behind -= behind & 0xFFFF == 0
    asked = np.where(needed, wanted + start, np.where(waits, behind, 0))
    found, block, count = list[Words](), a.copy(), loop.count
    # a count of 0 stays 0 in a block: a round that waits for one stands in front of it
    while count and (waits & (own > 0) & (asked & 0xFFFF == 0)).any():
        block[:, 2:HEADER_WORDS] = packed(asked)
        found.append(block.copy())
        for command, word, step in steps:
            block[command, word] = (int(block[command, word]) + step) & 0xFFFFFFFF
        asked, count = np.where(waits, asked + own, 0), count - 1
    block[:, 2:HEADER_WORDS] = packed(asked)
    return [*found, head(count, loop.length, steps, core, _read(loop, count)), block] if count else found


def _read(loop: Rounds, count: int) -> Mapping[str, int]:
    """The fields of a REPEAT whose rounds are read, where some rounds stand in front of it. Two run always:
    what is behind waits for commands of that many."""
    if not loop.read:
        return CONSTANT
    front = loop.count - count
    before = loop.read["before"] + (0 if loop.read["late"] else loop.read["each"] * front)
    return {**loop.read, "before": before, "least": min(count, max(0, 2 - front))}


def _wanted(words: Words, loop: Rounds) -> Ints:
    """The counts that commands of a round wait for, from its beginning on, as either round asks; the least
    number where neither does."""
    none, found = np.iinfo(np.int64).min, []
    for k in range(2):
        first = loop.first + k * loop.length
        waits = waits_of(words[first : first + loop.length])
        found.append(np.where(waits > 0, waits - _by_queue(words[:first]), none))
    return np.maximum(*found)


def _going(a: Words, b: Words, loop: Rounds) -> Iterator[tuple[int, int, int]]:
    for command, word in zip(*np.nonzero(a[:, HEADER_WORDS:] != b[:, HEADER_WORDS:]), strict=True):
        at, opcode = int(word) + HEADER_WORDS, by_code(int(a[command, 0] & 0xFF))
        assert opcode is not None
        names = {place: entry.name for entry, place in layout(opcode.name) if entry.width == 1}
        if (size := _next_constants(a[command], b[command])) and names.get(at) in ("external", "local"):
            yield int(command), at, size
            continue
        if names.get(at) not in _GOING.get(opcode.name, ()):
            why = f"from round to round, {opcode.name} has another {names.get(at, f'word {at}')}"
            raise differing(loop.loop, why)
        step = (int(b[command, at]) - int(a[command, at]) + (1 << 31)) % (1 << 32) - (1 << 31)
        place = int(a[command, at])
        if opcode.transfers and not any(lo <= place < hi and step == far for lo, hi, far in loop.tensors):
            why = f"{opcode.name} goes from byte {place} to {place + step}, in no tensor of all steps"
            raise differing(loop.loop, why)
        yield int(command), at, step


def _next_constants(one: Ints, other: Ints) -> int:
    """The bytes of a load of constants, where the next round's loads those behind them to behind where these
    lie; 0 where it does not."""
    first, second = (decode(words) for words in (one, other))
    if first.opcode != "LOAD" or first.text("space") != "CONST":
        return 0
    size = first.number("element") * int(np.prod(first.vector("dims")))
    further = {second.number(name) - first.number(name) for name in ("external", "local")}
    return size if further == {size} else 0


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


def tiles_folded(words: Words, core: int = 0) -> Words:
    """The commands with runs of alike tiles as blocks, and runs of these: `expanded` gives these very words
    again."""
    for _ in range(DEPTH):
        words = _folded_once(words, core)
    return words


def _folded_once(words: Words, core: int) -> Words:
    found: list[Words] = []
    at, kinds, going = 0, *_kinds(words)
    ends = _ends(words)
    while at < len(words):
        best = _run(words, kinds, going, at, ends) if at in ends else None
        if best is None:
            found.append(words[at : at + 1])
            at += 1
            continue
        length, count = best
        found += [head(count, length, _steps(words, going, at, length), core), words[at : at + length]]
        at += length * count
    return np.concatenate(found) if found else words


def _ends(words: Words) -> set[int]:
    """Where a block may begin or end: not within another."""
    found, at = set[int](), 0
    while at < len(words):
        found.add(at)
        if words[at, 0] & 0xFF == opcodes()[REPEAT].code:
            head = decode(words[at])
            at += head.number("advances") + head.number("length")
        at += 1
    return found | {at}


def _kinds(words: Words) -> tuple[list[bytes], npt.NDArray[np.bool_]]:
    """Of every command what must be the same in all rounds, and which of its words may go on: also where in
    local memory it reads and writes, since tiles of one buffer lie one behind the other."""
    going = np.zeros(words.shape, bool)
    codes = words[:, 0] & 0xFF
    for code in np.unique(codes):
        opcode = by_code(int(code))
        assert opcode is not None
        names = {*_GOING.get(opcode.name, ()), *opcode.pointers("read", "write", "sum")}
        names |= {"local"} if opcode.transfers else set()
        for entry, place in layout(opcode.name):
            if entry.name in names:
                going[codes == code, place] = True
    fixed = np.where(going, 0, words)
    fixed[:, 2:HEADER_WORDS] = packed((waits_of(words) > 0).astype(np.int64))
    return [row.tobytes() for row in fixed], going


def _steps(
    words: Words, going: npt.NDArray[np.bool_], at: int, length: int
) -> list[tuple[int, int, int]]:
    """By how much words of a block go on: command of the block, word, step."""
    far = words[at + length : at + 2 * length].astype(np.int64) - words[at : at + length]
    far = (far + (1 << 31)) % (1 << 32) - (1 << 31)
    return [(int(k), int(w), int(far[k, w])) for k, w in np.argwhere(going[at : at + length] & (far != 0))]


def _run(
    words: Words, kinds: Sequence[bytes], going: npt.NDArray[np.bool_], at: int, ends: set[int]
) -> tuple[int, int] | None:
    """The block that begins at a command and saves most: its length and how many rounds of it follow each
    other; None where none saves enough."""
    best, most = None, SAVED
    end = min(len(kinds), at + LONGEST)
    for other in (k for k in range(at + 1, end) if k in ends and kinds[k] == kinds[at]):
        length = other - at
        if kinds[at:other] != kinds[other : other + length]:
            continue
        count, own = 2, _by_queue(expanded(words[at:other]))
        while _alike(words, kinds, going, (at, length), count, own):
            count += 1
        count -= not _alike(words, kinds, going, (at, length), 1, own)
        saved = (count - 1) * length
        if saved > most and (saved := saved - _announced(words, going, at, length)) > most:
            best, most = (length, count), saved
    return best


def _announced(words: Words, going: npt.NDArray[np.bool_], at: int, length: int) -> int:
    """How many commands announce a block: a REPEAT, and ADVANCEs of so many words each."""
    return 1 + -(-len(_steps(words, going, at, length)) // opcodes()[ADVANCE].fields[0].width)


def _alike(
    words: Words, kinds: Sequence[bytes], going: npt.NDArray[np.bool_], block: tuple[int, int], number: int,
    own: Ints,
) -> bool:
    """Whether round `number`, counted from 0, is the first one gone on. `block`: where the first begins, and
    its length; `own`: commands of a round by queue."""
    at, length = block
    here = at + number * length
    if kinds[at : at + length] != kinds[here : here + length]:
        return False
    first, one, this = (words[k : k + length] for k in (at, at + length, here))
    step = one.astype(np.int64) - first
    if ((first + number * step - this) * going[at : at + length] & 0xFFFFFFFF).any():
        return False
    waits = waits_of(first)
    wanted = np.where(waits > 0, waits + number * own, 0) & 0xFFFF
    return bool((wanted == waits_of(this)).all())
