"""Finds what of a program's commands is repeated: rounds of loops, and runs of alike tiles.

`folded` gives the words as a file has them: it finds the block and the steps of its words in two rounds that
stand one after the other, and refuses where one is not the other with addresses that went on. `expanded`
(repeats.py) gives the commands again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import FitError
from npuflow.hw.encode import Words, decode, layout
from npuflow.hw.isa import HEADER_WORDS, WAIT_SLOTS, by_code, opcodes
from npuflow.program.repeats import (
    ADVANCE,
    CONSTANT,
    DEPTH,
    MOST,
    REPEAT,
    Ints,
    Rounds,
    by_queue,
    differing,
    expanded,
    has_repeats,
    head,
    later,
    packed,
    waits_of,
)

FAR = 1 << 14                             # counts from which on a 0 is no longer surely over
LAG = 4                                   # rounds behind, of a queue that a command does not wait for
CLOSE = 1 << 13                           # commands behind, of a queue that no wait of such a round names
SAVED = 8                                 # commands that a block must save
LONGEST = 512                             # commands of a block of tiles
_GOING = {"LOAD": ("external",), "STORE": ("external",), "BARRIER": ("id",)}


def folded(words: Words, loops: Sequence[Rounds], core: int = 0) -> Words:
    """The commands with each loop's two rounds as a block; a FitError where they are not alike.
    `loops` in the order of the commands; one may lie in each round of another one."""
    loops = [one for one in loops if one.length]
    if not loops:
        return words
    for loop in (one for one in loops if one.count * one.size > MOST):
        raise FitError(
            f'the loop "{loop.loop}" has {loop.count} rounds of {loop.size} commands, more than {MOST}',
            hint="fewer steps a run; [model] state keeps what is carried from run to run",
            code="NF-FIT-014",
        )
    words, loops = _inner_folded(words, loops, core)
    found: list[Words] = []
    done, more = 0, np.zeros(WAIT_SLOTS, np.int64)        # commands by queue of rounds that are not here
    inner = more                                          # of them those of loops in the rounds of others
    for loop in loops:
        second = loop.first + loop.length
        front = tiles_folded(later(words[done : loop.first], more), core)
        found.append(_past(front, more + inner, core))
        own = by_queue(expanded(words[loop.first : second], core))
        found += _block(words, loop, more, core)
        inner = inner + 2 * (own - _here(words[loop.first : second]))
        done, more = second + loop.length, more + (loop.count - 2) * own
    found.append(_past(tiles_folded(later(words[done:], more), core), more + inner, core))
    return np.concatenate(found)


def _inner_folded(
    words: Words, loops: Sequence[Rounds], core: int
) -> tuple[Words, list[Rounds]]:
    """The commands with the loops in rounds of others as blocks, and where the others' rounds lie then. What
    counts behind them are is in these commands, which have two rounds of the others."""
    inner = [
        one for one in loops
        if any(o.first <= one.first < o.end and o.length > one.length for o in loops)
    ]
    if not inner:
        return words, list(loops)
    own = {one.first: by_queue(words[one.first : one.first + one.length]) for one in loops}
    total = by_queue(words)
    for one in inner:
        total += (one.count - 2) * own[one.first]
    for one in (one for one in loops if one not in inner):
        within = (i for i in inner if one.first <= i.first < one.first + one.length)
        total += (one.count - 2) * sum(((i.count - 2) * own[i.first] for i in within), own[one.first])
    found, place = list[Words](), np.arange(len(words) + 1)
    done, more = 0, np.zeros(WAIT_SLOTS, np.int64)
    for one in inner:
        block = _block(words, one, more, core, total)
        found += [later(words[done : one.first], more), *block]
        place[one.end :] += sum(map(len, block[1:]), len(block[0])) - 2 * one.length
        done, more = one.end, more + (one.count - 2) * own[one.first]
    found.append(later(words[done:], more))
    others = [
        replace(one, first=int(first), length=int(second - first)) for one in loops if one not in inner
        for first, second in [place[[one.first, one.first + one.length]]]
    ]
    return np.concatenate(found), others


def _here(words: Words) -> Ints:
    """How many commands of each queue stand here, once each."""
    codes = [opcodes()[name].code for name in (REPEAT, ADVANCE)]
    return by_queue(words[~np.isin(words[:, 0] & 0xFF, codes)])


def _before(words: Words, core: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """How many commands of each queue come before each of these, in the first round of blocks; and which of
    these are in blocks."""
    found, inside = np.zeros((len(words), WAIT_SLOTS), np.int64), np.zeros(len(words), bool)
    at, had = 0, np.zeros(WAIT_SLOTS, np.int64)
    while at < len(words):
        end, count, first = at + 1, 1, at
        if words[at, 0] & 0xFF == opcodes()[REPEAT].code:
            head = decode(words[at])
            first = at + 1 + head.number("advances")
            end, count = first + head.number("length"), head.number("count")
            inside[at:end] = True
        one = np.eye(WAIT_SLOTS, dtype=np.int64)[(words[first:end, 0] >> 8 & 0xFF).astype(np.int64)]
        found[at:end] = had
        found[first:end] += np.cumsum(one, axis=0) - one
        at, had = end, had + count * one.sum(0)
    return found, inside


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
        own, waits = by_queue(expanded(words[at:end], core)), waits_of(words[at:end])
        done = np.where(own > 0, had - LAG * own, before) if count > 1 else before
        lacking = (waits == 0) & far & ~np.isin(words[at:end, 0] & 0xFF, codes)[:, None]
        made[at:end, 2:HEADER_WORDS] = packed(np.where(lacking, done - (done & 0xFFFF == 0), waits))
        at, had = end, had + count * own
    return made


def _block(words: Words, loop: Rounds, more: Ints, core: int, most: Ints | None = None) -> list[Words]:
    """All rounds of a loop: a REPEAT and the first round, with waits that hold for all. `more`: commands that
    queues have had beside those that are here. `most`: of a loop in another one, how many they have in the
    whole program: its block is in a block."""
    second = loop.first + loop.length
    a, b = words[loop.first : second], words[second : second + loop.length]
    if len(a) != len(b) or (a[:, 0] != b[:, 0]).any():
        raise differing(loop.loop, "a round has other commands than the one before it")
    own, steps = by_queue(expanded(a, core)), list(_going(a, b, loop))
    wanted, before = _wanted(words, loop, core), by_queue(expanded(words[: loop.first], core))
    start, needed = before + more, wanted > np.iinfo(np.int64).min
    # where counts pass 2^16, a count of 0 would be taken for one that is yet to come
    waits = needed | ((start + loop.count * own if most is None else most) >= FAR)
    behind, inside = start - LAG * own, np.zeros(len(a), bool)
    if has_repeats(a):
        place, inside = _before(a, core)
        behind = np.where(LAG * own > CLOSE, start + place - CLOSE, behind)
        waits &= ~np.isin(a[:, 0] & 0xFF, [opcodes()[name].code for name in (REPEAT, ADVANCE)])[:, None]
    behind -= behind & 0xFFFF == 0
    asked = np.where(needed, wanted + start, np.where(waits, behind, 0))
    found, block, count = list[Words](), a.copy(), loop.count
    # a count of 0 stays 0 in a block: a round that waits for one stands in front of it
    while count and (zeros := waits & (own > 0) & (asked & 0xFFFF == 0)).any():
        if most is not None or zeros[inside].any():
            raise differing(loop.loop, "a block in a block would wait for a count that 16 bits have as 0")
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


def _wanted(words: Words, loop: Rounds, core: int) -> Ints:
    """The counts that commands of a round wait for, from its beginning on, as either round asks; the least
    number where neither does."""
    none, found = np.iinfo(np.int64).min, []
    for k in range(2):
        first = loop.first + k * loop.length
        own = words[first : first + loop.length]
        waits, begin = waits_of(own), by_queue(expanded(words[:first], core))
        wanted = waits - begin
        if has_repeats(words):            # whose counts may pass 2^16; none is behind the command
            place, _ = _before(own, core)
            wanted = place - (place - wanted & 0xFFFF)
        found.append(np.where(waits > 0, wanted, none))
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
        best = _run(words, kinds, going, at, ends, core) if at in ends else None
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
    words: Words, kinds: Sequence[bytes], going: npt.NDArray[np.bool_], at: int, ends: set[int], core: int
) -> tuple[int, int] | None:
    """The block that begins at a command and saves most: its length and how many rounds of it follow each
    other; None where none saves enough."""
    best, most = None, SAVED
    end = min(len(kinds), at + LONGEST)
    for other in (k for k in range(at + 1, end) if k in ends and kinds[k] == kinds[at]):
        length = other - at
        if kinds[at:other] != kinds[other : other + length]:
            continue
        count, own = 2, by_queue(expanded(words[at:other], core))
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
