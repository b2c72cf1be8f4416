"""Programs that read how many steps their loops run, or an index: of one such number, and of any index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import ModelError
from npuflow.hw.command import Command
from npuflow.hw.encode import Words, decode
from npuflow.hw.isa import HEADER_WORDS
from npuflow.program.repeats import (
    INDEXED,
    REPEAT,
    Ints,
    expanded,
    has_repeats,
    head,
    packed,
    turns_of,
    waits_of,
)

NEAR = 8                                  # commands that do not go on, between two of a block that do
FAR = 1 << 15                             # counts from which on the larger of two waits is not known
READ = ("lengths", "indices")             # of the metadata: numbers that REPEAT commands read


def shortened(
    meta: Mapping[str, Any], stored: Sequence[Words], steps: Mapping[str, int], whole: bool = False
) -> tuple[tuple[Words, ...], dict[str, Any]]:
    """The commands of a program as the machine runs them for so many steps or at an index, by the inputs that
    say so, and its metadata. A ModelError for more than the most. `whole`: caches are read whole."""
    held = _held(meta, steps, whole)
    fewer = [list(_fewer(words, held)) for words in stored]
    made, done = [], [0] * len(stored)
    for step in meta["steps"]:
        if step["kind"] == "npu":
            count = [
                n - sum(gone for at, gone in rows if first <= at < first + n)
                for first, n, rows in zip(step["first"], step["count"], fewer, strict=True)
            ]
            step = {**step, "first": done, "count": count}
            done = [a + b for a, b in zip(done, count, strict=True)]
        made.append(step)
    every = tuple(expanded(words, core, steps=held) for core, words in enumerate(stored))
    loops = {"loops": [_run_loop(own, fewer) for own in meta["loops"]]} if "loops" in meta else {}
    return every, {**meta, "steps": made, **loops}


def _run_loop(own: Mapping[str, Any], fewer: Sequence[Sequence[tuple[int, int]]]) -> dict[str, Any]:
    """A loop of the metadata as it runs: its rounds, and where they lie. `skipped`: behind how many rounds
    others do not run, and how many. `fewer`: by core where commands are missing, and how many."""
    blocks, front, gone = list[list[int] | None](), 0, 0
    for block, rows in zip(own["blocks"], fewer, strict=True):
        if block is not None:
            first, size = block
            mine = [(at, n) for at, n in rows if first <= at < first + size * own["rounds"]]
            block = [first - sum(n for at, n in rows if at < first), size]
            front = max((at - first) // size for at, _ in mine) if mine else front
            gone = max(gone, sum(n for _, n in mine) // size)
        blocks.append(block)
    skipped = {"skipped": [front, gone]} if own.get("late") else {}
    return {**own, "blocks": blocks, "rounds": own["rounds"] - gone, **skipped}


def rounds_at(
    meta: Mapping[str, Any], stored: Sequence[Words], steps: Mapping[str, int], whole: bool = False
) -> tuple[int, ...]:
    """How many rounds every block runs that reads them, of one at an index in front of which it stands:
    programs of equal rounds are equal."""
    held = _held(meta, steps, whole)
    every = (
        (repeat, turns_of(repeat, held.get(repeat.number("address"))))
        for words in stored for _, repeat, _ in _reading(words)
    )
    return tuple(turns.start if _indexed(repeat) else len(turns) for repeat, turns in every)


def _held(meta: Mapping[str, Any], steps: Mapping[str, int], whole: bool) -> dict[int, int]:
    """What DATA holds of numbers of steps and indices, by address."""
    every = [one for key in READ for one in meta.get(key, ()) if not (whole and one.get("attended"))]
    return {one["address"]: written(one, steps[one["input"]]) for one in every if one["input"] in steps}


def written(one: Mapping[str, Any], number: int) -> int:
    """What DATA holds of a number of steps or an index: of rows of a ring what is left of full turns. A
    ModelError for an index above the most, whose row alone would be one that there is."""
    if "modulo" not in one:
        return number
    if not 0 <= number <= one["most"]:
        raise ModelError(
            f"the index {number}, at most {one['most']} is possible", code="NF-DECODE-012",
        )
    return int(number % one["modulo"])


def _most(one: Mapping[str, Any]) -> int:
    """The largest number that DATA holds there."""
    return int(one["modulo"]) - 1 if "modulo" in one else int(one["most"])


def _indexed(repeat: Command) -> bool:
    return repeat.number("late") == INDEXED


def check_counts(meta: Mapping[str, Any], stored: Sequence[Words]) -> None:
    """Rounds are read only where the program says that a number of steps lies, an index where it says so."""
    known = {(one["address"], _most(one), key == READ[1]) for key in READ for one in meta.get(key, ())}
    for words in stored:
        for _, repeat, _ in _reading(words):
            place = repeat.number("address"), repeat.number("most"), _indexed(repeat)
            if place not in known:
                raise ModelError(
                    f"a REPEAT reads its rounds at byte {place[0]} of DATA, at most {place[1]} steps",
                    because="the program says of no number of steps that it lies there", code="NF-DECODE-011",
                )


def _reading(words: Words) -> Iterator[tuple[int, Command, int]]:
    """Every REPEAT that reads its rounds: where its block begins among the commands of all rounds, and how
    many a round has."""
    if not has_repeats(words):
        return
    at = start = 0
    while at < len(words):
        command = decode(words[at])
        if command.opcode != REPEAT:
            at, start = at + 1, start + 1
            continue
        first = at + 1 + command.number("advances")
        at = first + command.number("length")
        length = len(expanded(words[first:at], command.core))
        if command.number("most"):
            yield start, command, length
        start += length * (1 if _indexed(command) else command.number("count"))


def _fewer(words: Words, held: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Where commands of rounds are missing that do not run, and how many."""
    for start, repeat, length in _reading(words):
        if not _indexed(repeat):
            turns = turns_of(repeat, held.get(repeat.number("address")))
            yield start, (repeat.number("count") - len(turns)) * length


def at_any_index(
    words: Mapping[tuple[int, ...], Words], whole: Words, reads: Sequence[Mapping[str, int]], core: int
) -> Words | None:
    """The commands of a core with those that depend on an index in blocks that are issued once. `words`: at
    some numbers: first some, then with the next one of each kind (the turn, the index, the row of a ring);
    `whole`: at the last. None where they are not the same commands, with words that go on evenly. `reads`:
    the fields of REPEAT commands whose blocks go on by each kind."""
    begin, *others = list(words)[: 1 + len(reads)]
    base = words[begin]
    if any(w.shape != base.shape or (w[:, :2] != base[:, :2]).any() for w in (*words.values(), whole)):
        return None
    steps = [_going(base, words[other]) for other in others]
    first = base[:, HEADER_WORDS:] - _gone(steps, begin)
    for numbers, mine in words.items():
        if ((first + _gone(steps, numbers) - mine[:, HEADER_WORDS:]) & 0xFFFFFFFF).any():
            return None
    waits = np.max([waits_of(w) for w in (*words.values(), whole)], axis=0)
    if (np.sum([step.any(1) for step in steps], axis=0) > 1).any() or waits.max(initial=0) >= FAR:
        return None
    made = base.copy()
    made[:, 2:HEADER_WORDS] = packed(waits)
    made[:, HEADER_WORDS:] = first & 0xFFFFFFFF
    found = _in_blocks(made, steps, reads, core)
    return found if (expanded(found, core)[:, :2] == whole[:, :2]).all() else None


def _gone(steps: Sequence[Ints], numbers: Sequence[int]) -> Ints:
    """By how much fields have gone on."""
    return np.sum([number * step for number, step in zip(numbers, steps, strict=True)], axis=0)


def _going(one: Words, other: Words) -> Ints:
    """By how much fields go on from one program to another."""
    far = (other.astype(np.int64) - one)[:, HEADER_WORDS:]
    return (far + (1 << 31)) % (1 << 32) - (1 << 31)


def _in_blocks(made: Words, steps: Sequence[Ints], reads: Sequence[Mapping[str, int]], core: int) -> Words:
    found, done = list[Words](), 0
    for kind, begin, end in _runs([np.asarray(step.any(1)) for step in steps]):
        going = [
            (int(k), int(word) + HEADER_WORDS, int(steps[kind][begin + k, word]))
            for k, word in zip(*np.nonzero(steps[kind][begin:end]), strict=True)
        ]
        fields = dict(reads[kind])
        count = fields.pop("count")
        found += [made[done:begin], head(count, end - begin, going, core, fields), made[begin:end]]
        done = end
    return np.concatenate([*found, made[done:]])


def _runs(goes: Sequence[npt.NDArray[np.bool_]]) -> Iterator[tuple[int, int, int]]:
    """Stretches of commands that go on in one way, from the first to behind the last of those that lie near
    each other."""
    kinds = sorted((int(at), kind) for kind, own in enumerate(goes) for at in np.flatnonzero(own))
    start = 0
    for k, (at, kind) in enumerate(kinds):
        if k + 1 == len(kinds) or kinds[k + 1][1] != kind or kinds[k + 1][0] - at > NEAR:
            yield kind, kinds[start][0], at + 1
            start = k + 1
