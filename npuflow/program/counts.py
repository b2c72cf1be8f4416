"""Programs whose loops read how many steps they run: the program of one number of steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from npuflow.base.errors import ModelError
from npuflow.hw.command import Command
from npuflow.hw.encode import Words, decode
from npuflow.program.repeats import REPEAT, expanded, has_repeats, rounds_of

WORD = 4                                  # bytes of a number of steps in DATA


def shortened(
    meta: Mapping[str, Any], stored: Sequence[Words], steps: Mapping[str, int]
) -> tuple[tuple[Words, ...], dict[str, Any]]:
    """The commands of a program as the machine runs them for so many steps, by the inputs that say so, and
    its metadata. A ModelError for more than the most."""
    held = _held(meta, steps)
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
    return every, {**meta, "steps": made}


def rounds_at(
    meta: Mapping[str, Any], stored: Sequence[Words], steps: Mapping[str, int]
) -> tuple[int, ...]:
    """How many rounds every block runs that reads them: programs of equal rounds are equal."""
    held = _held(meta, steps)
    return tuple(
        rounds_of(repeat, held.get(repeat.number("address")))
        for words in stored for _, repeat, _ in _reading(words)
    )


def _held(meta: Mapping[str, Any], steps: Mapping[str, int]) -> dict[int, int]:
    """What DATA holds of numbers of steps, by address."""
    return {one["address"]: steps[one["input"]] for one in meta.get("lengths", ())}


def check_counts(meta: Mapping[str, Any], stored: Sequence[Words]) -> None:
    """Rounds are read only where the program says that a number of steps lies."""
    known = {(one["address"], one["most"]) for one in meta.get("lengths", ())}
    for words in stored:
        for _, repeat, _ in _reading(words):
            place = repeat.number("address"), repeat.number("most")
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
        length = len(expanded(words[first:at]))
        if command.number("most"):
            yield start, command, length
        start += command.number("count") * length


def _fewer(words: Words, held: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Where commands of rounds are missing that do not run, and how many."""
    for start, repeat, length in _reading(words):
        rounds = rounds_of(repeat, held.get(repeat.number("address")))
        yield start, (repeat.number("count") - rounds) * length
