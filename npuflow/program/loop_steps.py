"""Which step of which loop a command of a program runs for, counted over all rounds.

The commands of a block name the nodes of its first round, and run many times. The metadata's table `loops`
says where the rounds of each loop lie among all commands, and of which steps its nodes are. A command that
stands in the round behind its own keeps the node of the round before, and counts on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from npuflow.base.wording import counted
from npuflow.hw.command import Command
from npuflow.hw.encode import decode_all
from npuflow.program.container import Program
from npuflow.program.repeats import INDEXED, REPEAT

Blocks = Sequence[tuple[Mapping[str, Any], int]]


@dataclass(frozen=True)
class LoopStep:
    """A step of a loop, counted from 0 as in the names of its values, and how many there are."""

    loop: str
    step: int
    steps: int


@dataclass(frozen=True)
class LoopSteps:
    """The loops of a program as its metadata has them."""

    program: Program

    @cached_property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        return list(self.program.meta.get("loops", ()))

    @cached_property
    def _places(self) -> dict[int, list[tuple[int, int]]]:
        """By node the loops that it is in, outer ones first, and its place among the steps of each."""
        found: dict[int, list[tuple[int, int]]] = {}
        for row in sorted(range(len(self.rows)), key=lambda row: "outer" in self.rows[row]):
            for k, nodes in enumerate(self.rows[row]["nodes"]):
                for node in nodes:
                    found.setdefault(node, []).append((row, k))
        return found

    def around(self, node: int) -> tuple[str, ...]:
        """The loops that a node is in, the outer one first."""
        return tuple(self.rows[row]["loop"] for row, _ in self._places.get(node, ()))

    def of(self, core: int, index: int) -> tuple[LoopStep, ...]:
        """The steps that a command runs for, that of the outer loop first; none of one that is in no loop.
        `index`: among all commands of the core."""
        found, at = list[LoopStep](), index
        for row, k in self._places.get(int(self.program.commands[core][index, 1]), ()):
            own = self.rows[row]
            turn, at = _turn(own, core, at)
            step = own["numbers"][k] + own["each"] * _gone_on(own, k, turn)
            found.append(LoopStep(own["loop"], step, own["numbers"][-1] + 1))
        return tuple(found)

    def turns(
        self, commands: Iterable[tuple[int, int]], place: Mapping[int, int]
    ) -> Iterator[tuple[int, ...]]:
        """Where each command's group comes as the rounds run, as a key to sort by: of each loop around it the
        place where that begins and the step, then the group's own place. `commands`: core, and index among
        all commands of it; `place`: of groups, by node."""
        begins = [min((place[n] for step in row["nodes"] for n in step if n in place), default=-1)
                  for row in self.rows]
        for core, index in commands:
            node = int(self.program.commands[core][index, 1])
            around = zip(self._places.get(node, ()), self.of(core, index), strict=True)
            yield (*(k for (row, _), one in around for k in (begins[row], one.step)), place[node])

    @cached_property
    def _makers(self) -> dict[str, int]:
        """By value the node that makes it, in the order of the network."""
        nodes = enumerate(self.program.meta["nodes"])
        return {name: n for n, node in nodes for name in node.get("outputs", ())}

    def made(self, value: str) -> tuple[int, tuple[LoopStep, ...]] | None:
        """The node that makes a value, and the steps that this is of; None of one that no node makes. Of the
        rounds behind the second one the node is that of the second."""
        name, steps = self._in_file(value)
        if name not in self._makers:
            return None
        node, found = self._makers[name], list[LoopStep]()
        for row, k in self._places.get(node, ()):
            own = self.rows[row]
            step = steps.get(row, own["numbers"][k])
            found.append(LoopStep(own["loop"], step, own["numbers"][-1] + 1))
        return node, tuple(found)

    def layer(self, value: str) -> str:
        """The name and operator of the node that makes a value; "" of one that no node makes."""
        made = self.made(value)
        node = self.program.meta["nodes"][made[0]] if made is not None else None
        return "" if node is None else f"{node['name']} ({node.get('op', '?')})"

    def in_order(self, values: Iterable[str]) -> list[str]:
        """Values in the order of the network, in front of all those that no node makes. What only the last
        rounds of a loop leave stands behind its second round."""
        place = {name: at for at, name in enumerate(self._makers)}

        def key(value: str) -> tuple[int, int, int]:
            name, steps = self._in_file(value)
            if not steps:
                return place.get(name, -1), 0, 0
            row, step = next(iter(steps.items()))
            nodes = (self.program.meta["nodes"][n] for n in self.rows[row]["nodes"][-2])
            return max(place[o] for node in nodes for o in node["outputs"]), step, place[name]

        return sorted(values, key=key)

    def _in_file(self, value: str) -> tuple[str, Mapping[int, int]]:
        """The name of a value, or of the same value in second rounds where only those have nodes; and the
        steps that it is of in place of those, by row, that of the outer loop first."""
        for name, steps in self._alike(value):
            around = self._places.get(self._makers.get(name, -1), ())
            if name in self._makers and steps.keys() <= {row for row, _ in around}:
                return name, steps
        return value, {}

    def _alike(self, value: str) -> Iterator[tuple[str, Mapping[int, int]]]:
        """A value's name, and those that it may have in second rounds."""
        yield value, {}
        inner = [(row, own) for row, own in enumerate(self.rows) if "outer" in own]
        found = [(name, {row: step}) for row, own in enumerate(self.rows) if "outer" not in own
                 for name, step in _in_second_round(value, own, -1)]
        yield from found
        for before, steps in [*found, (value, {})]:
            yield from ((name, steps | {row: step}) for row, own in inner
                        for name, step in _in_second_round(before, own, -2))

    @cached_property
    def at_once(self) -> frozenset[int]:
        """The nodes of loops that run at the same time, each on a core of its own."""
        single = {row: own for row, one in enumerate(self.rows)
                  for own in [[c for c, block in enumerate(one["blocks"]) if block is not None]]
                  if len(own) == 1}
        if len({core for (core,) in single.values()}) < 2:
            return frozenset()
        return frozenset(n for row in single for step in self.rows[row]["nodes"] for n in step)

    def block_at(self, core: int, at: int, size: int) -> Mapping[str, Any] | None:
        """The loop of whose rounds a block is that begins at a command and has so many in a round; None:
        those are of no loop."""
        for own in (own for own in self.rows if own["blocks"][core] is not None and size):
            first, each = own["blocks"][core]
            if each == size and 0 <= at - first < size * own["rounds"] and not (at - first) % size:
                return own
        return None

    @cached_property
    def layers(self) -> Mapping[int, int]:
        """By node that is in a loop the node of the same layer in the first round, of an inner loop's first
        round in it."""
        depths: list[dict[int, int]] = [{}, {}]
        for own in self.rows:
            alike = own["nodes"][len(own["numbers"]) - 2 * own["each"] - 1]
            for step in (step for step in own["nodes"] if len(step) == len(alike)):
                depths["outer" in own].update(zip(step, alike, strict=True))
        outer, inner = depths
        return inner | {node: inner.get(first, first) for node, first in outer.items()}


@dataclass(frozen=True)
class StoredCommand:
    """A command as the file has it, by its place there. `at`: where its first run lies among all commands of
    the core; None of one that says how others are repeated. `blocks`: loops with blocks around it, and how
    many rounds these have."""

    command: Command
    index: int
    at: int | None
    blocks: Blocks = ()


def stored_commands(program: Program, core: int) -> Iterator[StoredCommand | str]:
    """The commands of a core as the file has them; and in words where a block begins and ends."""
    every = decode_all((program.stored or program.commands)[core], core=core, alike=True)
    steps = LoopSteps(program)

    def run(first: int, end: int, at: int, blocks: Blocks) -> Iterator[StoredCommand | str]:
        while first < end:
            command = every[first]
            if command.opcode != REPEAT:
                yield StoredCommand(command, first, at, blocks)
                first, at = first + 1, at + 1
                continue
            body, count = first + 1 + command.number("advances"), _rounds(command)
            behind = body + command.number("length")
            own = steps.block_at(core, at, size := _size(every, body, behind))
            alike = "alike tiles" if count == command.number("count") else "what depends on an index"
            what = alike if own is None else f'loop "{own["loop"]}"'
            yield f"{counted(count, 'round')} of {what}: a block of {counted(behind - body, 'command')}"
            yield from (StoredCommand(every[k], k, None) for k in range(first, body))
            around = (*blocks, (own, count)) if own is not None else blocks
            yield from run(body, behind, at, around)
            yield f"the end of the block of {what}"
            first, at = behind, at + count * size

    return run(0, len(every), 0, ())


def _size(every: Sequence[Command], first: int, end: int) -> int:
    """Commands of a round, those of all rounds of blocks in it among them."""
    size = 0
    while first < end:
        command, size = every[first], size + 1
        first += 1
        if command.opcode == REPEAT:
            body = first + command.number("advances")
            first = body + command.number("length")
            size += _rounds(command) * _size(every, body, first) - 1
    return size


def _rounds(repeat: Command) -> int:
    """How often a block runs, the most."""
    return 1 if repeat.number("late") == INDEXED else repeat.number("count")


def _in_second_round(value: str, own: Mapping[str, Any], at: int) -> Iterator[tuple[str, int]]:
    """The name of a value of a later round in the second one, and its step; `at`: where its name has that."""
    parts, numbers, each = value.split("@"), own["numbers"], own["each"]
    if len(parts) > -at and parts[at].isdecimal():
        step, first = int(parts[at]), numbers[-1 - each]
        if first + each <= step < numbers[-1]:
            parts[at] = str(first + (step - first) % each)
            yield "@".join(parts), step


def _turn(own: Mapping[str, Any], core: int, at: int) -> tuple[int, int]:
    """In which round of a loop a command lies: -1 in front of them, their number behind them; and where the
    same command of the first round does."""
    block = own["blocks"][core]
    if block is None or at < block[0]:
        return -1, at
    first, size = block
    turn = min((at - first) // size, own["rounds"])
    return turn, at - turn * size if turn < own["rounds"] else at


def _gone_on(own: Mapping[str, Any], k: int, turn: int) -> int:
    """By how many rounds a command of the `k`-th step that the program has went on."""
    front, skipped = own.get("skipped", (0, 0))
    if turn < 0:
        return 0
    if turn < own["rounds"]:
        return turn + skipped * (turn >= front)
    # what is left of the last round names the nodes of the second one
    last = len(own["numbers"]) - 1
    return own["rounds"] - 2 + skipped if last - own["each"] <= k < last else 0


def said(steps: Sequence[LoopStep], blocks: Blocks = ()) -> str:
    """In words; "" for none. `blocks`: those around a command as a file has it, which stands for all rounds:
    the loop of each, and how many rounds."""
    rounds = {own["loop"]: (own["each"], count) for own, count in blocks}
    words = (("iteration", "loop"), ("step", "inner loop"))
    found = []
    for (what, where), one in zip(words, steps, strict=False):
        numbers = _numbers(one, *rounds.get(one.loop, (0, 1)))
        found.append(f'{what}{numbers} (of 0 to {one.steps - 1}) of {where} "{one.loop}"')
    return ", ".join(found)


def _numbers(one: LoopStep, each: int, count: int) -> str:
    """The steps that a command runs for in so many rounds."""
    every = [one.step + each * k for k in range(count)]
    if count <= 3:
        return f"{'s' * (count > 1)} {', '.join(map(str, every))}"
    return f"s {every[0]}, {every[1]} .. {every[-1]}"
