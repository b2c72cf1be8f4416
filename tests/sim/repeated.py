"""Random programs of blocks that are repeated, and what a full expansion of each number of rounds finds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.hw.command import FieldValue
from npuflow.hw.encode import Words, encode, layout
from npuflow.hw.isa import HEADER_WORDS, WAIT_SLOTS, opcodes
from npuflow.program.container import Program
from npuflow.program.counts import rounds_at
from npuflow.program.order import order_of
from npuflow.program.repeats import by_queue, expanded, head, packed, waits_of
from npuflow.sim.hazards import hazards_of
from tests.sim.cases import QUEUES
from tests.sim.programs import flat_copy, serial

KINDS = {"RAW", "WAR", "WAW", "overlap", "count", "deadlock"}
BOUNDS = {"NF-SIM-001", "NF-SIM-002"}     # not proved: the most rounds have every address, and are expanded
SLOTS, SLOT, ADDRESS = 8, 16, 4096


@dataclass
class Drawn:
    """A program that grows: `done`, commands by queue of all rounds so far; `apart`: how likely a command
    waits for all of a queue, and not for less of it or for none."""

    rng: random.Random
    apart: float
    done: list[int] = field(default_factory=lambda: [0] * WAIT_SLOTS)
    words: list[Words] = field(default_factory=list)

    def command(self) -> tuple[str, dict[str, FieldValue]]:
        rng, local = self.rng, SLOT * self.rng.randrange(SLOTS)
        if rng.random() < .3:
            return "FILL", {"y": local, "y_type": "int8", "y_strides": (0, 0, 0, 1), "dims": (1, 1, 1, 16),
                            "value": 1}
        kind = rng.choice(("LOAD", "STORE"))
        external = (0 if kind == "LOAD" else 1024) + 8 * rng.randrange(64)
        return flat_copy(kind, "DATA", external, local, rng.choice((8, 16)))

    def wait(self, queue: int) -> list[int]:
        found = []
        for q in range(4):
            all_done, draw = self.done[q], self.rng.random()
            if q == queue or draw > .5 + self.apart / 2:
                found.append(0)
            else:
                less = 0 if draw < self.apart else self.rng.randrange(8)
                found.append((all_done - less) & 0xFFFF if all_done else 0)
        return found

    def row(self) -> Words:
        opcode, fields = self.command()
        queue = QUEUES[opcodes()[opcode].queue]
        words = encode(opcode, fields, queue=queue, wait=self.wait(queue))
        self.done[queue] += 1
        return words

    def rows(self, count: int) -> None:
        self.words += [self.row()[None] for _ in range(count)]

    def block(self, count: int, read: dict[str, int], nested: bool = False) -> None:
        begin, rows = list(self.done), [self.row() for _ in range(self.rng.randint(2, 5))]
        words = np.stack(rows)
        if nested:
            inner = Drawn(self.rng, self.apart, self.done)
            inner.block(2, {})
            words = np.concatenate([words, *inner.words])
        steps = []
        for k, row in enumerate(words):
            opcode = next(o for o in opcodes().values() if o.code == row[0] & 0xFF)
            for at, name in ((n, f) for n, f in _places(opcode.name) if self.rng.random() < .3):
                if name in ("external", "local", "y"):
                    steps.append((k, at, self.rng.choice((8, 16) if name == "external" else (0, SLOT, -8))))
        steps = [(k, at, step) for k, at, step in steps if step and int(words[k, at]) + step * count >= 0]
        self.words += [head(count, len(words), steps, 0, read), words]
        own = by_queue(expanded(words))
        self.done[:] = [b + count * int(n) for b, n in zip(begin, own, strict=True)]


def _places(name: str) -> Iterator[tuple[int, str]]:
    return ((place, entry.name) for entry, place in layout(name) if entry.width == 1)


def place_of(opcode: str, field: str) -> int:
    """The word of a field."""
    return next(place for place, name in _places(opcode) if name == field)


def drawn(seed: int, most: int = 8) -> Program:
    """A program with one or two blocks, which read their rounds as a rule."""
    rng = random.Random(seed)
    made = Drawn(rng, rng.choice((.7, .9, 1.0)))
    made.rows(rng.randrange(4))
    for _ in range(rng.choice((1, 1, 2))):
        read = {"most": most, "address": ADDRESS, "before": rng.randrange(-1, 3), "least": rng.randrange(3),
                "each": rng.choice((1, 1, 2)), "late": rng.randrange(2)}
        made.block(most, read if rng.random() < .8 else {}, rng.random() < .2)
        made.rows(rng.randrange(4))
    return with_words(serial([], data=ADDRESS + 4), np.concatenate(made.words), most)


def with_words(program: Program, words: Words, most: int, address: int = ADDRESS) -> Program:
    """The same with other stored words, that may read a number of steps."""
    every = expanded(words)
    steps = [{"kind": "npu", "segment": 0, "first": [0], "count": [len(every)]}]
    said = [{"input": "T", "least": 0, "most": most, "address": address, "axes": {}}]
    return replace(program, stored=(words,), commands=(every,),
                   meta={**program.meta, "steps": steps, "lengths": said})


def expansions(program: Program) -> set[str]:
    """Kinds of hazards that any number of rounds has; addresses out of bounds are none."""
    (length,), found = program.meta["lengths"], set[str]()
    name, seen = length["input"], dict[tuple[int, ...], int]()
    for number in range(length["most"] + 1):
        seen.setdefault(rounds_at(program.meta, program.stored, {name: number}), number)
    for number in seen.values():
        part = program.at({name: number})
        try:
            found |= {h.kind for h in hazards_of(part, order_of(part))} & KINDS
        except ModelError as error:
            if error.code not in BOUNDS:
                found.add("deadlock" if error.code == "NF-SIM-011" else str(error.code))
    return found


def mutated(words: Words, rng: random.Random) -> Words:
    """One wait lowered or removed, one address moved, or the step of an ADVANCE changed."""
    made, codes = words.copy(), {o.code: o.name for o in opcodes().values()}
    kind = rng.choice(("wait", "wait", "address", "step"))
    rows = [k for k, row in enumerate(made) if codes[row[0] & 0xFF] != "REPEAT"]
    advances = [k for k in rows if codes[made[k, 0] & 0xFF] == "ADVANCE"]
    rows = [k for k in rows if k not in advances]
    if kind == "step" and advances:
        row = rng.choice(advances)
        places = [at for at in range(HEADER_WORDS + 34, HEADER_WORDS + 51) if made[row, at]]
        if places:
            at = rng.choice(places)
            made[row, at] = (int(made[row, at]) + rng.choice((-32, -16, 16, 32))) & 0xFFFFFFFF
        return made
    row = rng.choice(rows)
    if kind == "address":
        names = [at for at, name in _places(codes[made[row, 0] & 0xFF]) if name in ("local", "y", "x", "a")]
        if names:
            at = rng.choice(names)
            made[row, at] = max(0, int(made[row, at]) + rng.choice((-64, -32, 32, 64)))
        return made
    waits = waits_of(made[row : row + 1])[0]
    asked = np.flatnonzero(waits)
    if len(asked):
        q = rng.choice(asked.tolist())
        waits[q] = rng.choice((0, max(0, waits[q] - 1), max(0, waits[q] - rng.randrange(1, 20))))
        made[row, 2:HEADER_WORDS] = packed(waits)
    return made
