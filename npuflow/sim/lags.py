"""How far commands of few rounds may run ahead of others, in a way that holds for any more rounds.

A *lag* is how many of the last commands of a queue, counted back from a command in the order of the program,
may not have retired when it starts. `lags_of` runs vector clocks over every item with a few rounds of each
long block. What a command would know only of commands more than `REACH` rounds back is taken as unknown; so
is, behind a block, what is known only of commands in front of its last rounds, of queues that it has commands
of. So the clocks of a round depend on the `REACH` rounds before it, and in front of the block on queues that
it has no commands of. Where the last `REACH` + 1 rounds have equal lags, all that follow have them. To know
less than is so makes lags larger: they are upper bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuflow.hw.isa import WAIT_SLOTS
from npuflow.program.repeats import Ints
from npuflow.sim.templates import HALF, StoredItem, Unproved

REACH = 2


@dataclass(frozen=True)
class RoundsCase:
    """Numbers of rounds that are judged together. `rounds` [numbers, items] and `skipped`, how often words of
    the first round have gone on; `few`: rounds of each item that are looked at; `long`: which items may have
    more, all of which are like the last one."""

    rounds: Ints
    skipped: Ints
    few: tuple[int, ...]
    long: tuple[bool, ...]


@dataclass(frozen=True)
class Lags:
    """Of all commands of few rounds, in the order of the program: `item`, `turn` (round), `row` (command of
    the item), `queue`, `place` in it, and `start` [commands, queues]: how many of each queue have retired.
    `blind` [commands, queues]: of how many is unknown, and may be none at all."""

    item: Ints
    turn: Ints
    row: Ints
    queue: Ints
    place: Ints
    start: Ints
    blind: Ints

    def before(self, one: int) -> Ints:
        """Which commands in front of a command may not have retired when it starts."""
        found = self.place >= self.start[one, self.queue]
        found[one:] = False
        return found


class _Clocks:
    def __init__(self, items: Sequence[StoredItem], case: RoundsCase, segments: Sequence[int]) -> None:
        self.items, self.case, self.segments = items, case, frozenset(segments)
        self.done, self.floor = (np.zeros(WAIT_SLOTS, np.int64) for _ in range(2))
        self.known = np.zeros((WAIT_SLOTS, WAIT_SLOTS), np.int64)
        self.ends: list[list[Ints]] = [[] for _ in range(WAIT_SLOTS)]
        self.rows: list[tuple[int, int, int, int, int]] = []
        self.starts: list[Ints] = []
        self.blind: list[Ints] = []

    def run(self) -> Lags:
        totals = sum(item.count * item.own for item in self.items)
        # in the cases, and where only few rounds run
        fewer = np.zeros((len(self.case.rounds) + 1, WAIT_SLOTS), np.int64)
        for k, item in enumerate(self.items):
            if k in self.segments:
                self.known[:] = self.done
            self._item(k, item, fewer, np.asarray(totals))
            short = item.count - np.append(self.case.rounds[:, k], self.case.few[k])
            fewer = fewer + short[:, None] * item.own
        items, turns, rows, queues, places = np.array(self.rows, np.int64).reshape(-1, 5).T
        starts, blind = (np.array(a).reshape(-1, WAIT_SLOTS) for a in (self.starts, self.blind))
        return Lags(items, turns, rows, queues, places, starts, blind)

    def _item(self, k: int, item: StoredItem, fewer: Ints, totals: Ints) -> None:
        """`fewer` [numbers + 1, queues]: commands of rounds in front that do not run, at last those of few
        rounds, which are the most."""
        count, gone = self.case.few[k], item.waits - fewer[-1]
        # a count of exactly 0 waits for nothing in any round
        zero = (item.waits[..., None] == fewer[:-1].T).any(-1)
        asked = item.asked & ~zero & ~(item.nested[:, None] & (gone <= 0))
        least = item.waits - fewer[:-1].max(0)
        if totals.max() >= HALF or (item.asked & (totals - least >= HALF)).any():
            raise Unproved(f"command {item.at} may wait for a count that 16 bits do not tell from others")
        begins, front = [self.done.copy()], self.floor
        for turn in range(count):
            if self.case.long[k] and turn >= REACH:
                self.floor = np.where(item.own > 0, begins[turn - REACH], front)
            for row in range(len(item.commands)):
                waits = np.where(asked[row], gone[row] + item.inner[row] + turn * item.own, 0)
                self._command((k, turn, row), int(item.queues[row]), waits)
            begins.append(self.done.copy())
        if self.case.long[k]:
            self.floor = np.where(item.own > 0, begins[count - REACH], front)
            self._settled(k, item)

    def _command(self, place: tuple[int, int, int], queue: int, waits: Ints) -> None:
        start = self.known[queue].copy()
        for e in np.flatnonzero(waits > 0):
            count = int(waits[e])
            if count > self.done[e]:
                where = self.items[place[0]].at
                raise Unproved(f"a command of the item at {where} waits for what stands behind it")
            if count > max(start[e], self.floor[e]):
                start = np.maximum(start, self.ends[e][count - 1])
            elif count == self.floor[e]:
                start[e] = max(start[e], count)       # what that command knew is of rounds too far back
        start[queue] = self.done[queue]
        unknown = start < self.floor
        start = np.where(unknown, 0, start)
        self.rows.append((*place, queue, int(self.done[queue])))
        self.starts.append(start)
        self.blind.append(unknown)
        self.done[queue] += 1
        end = start.copy()
        end[queue] = self.done[queue]
        self.known[queue] = end
        self.ends[queue].append(end)

    def _settled(self, k: int, item: StoredItem) -> None:
        """The last rounds have the same lags."""
        size, count = len(item.commands), REACH + 1
        begin = len(self.starts) - size * self.case.few[k]
        if self.case.few[k] < count:
            raise Unproved(f"the block at command {item.at} has too few rounds")
        past = np.zeros((size, WAIT_SLOTS), np.int64)
        for row in range(1, size):
            past[row] = past[row - 1]
            past[row, item.queues[row - 1]] += 1
        base = np.bincount([r[3] for r in self.rows[:begin]], minlength=WAIT_SLOTS)
        found = []
        for turn in range(self.case.few[k] - count, self.case.few[k]):
            here = slice(begin + turn * size, begin + (turn + 1) * size)
            blind = np.array(self.blind[here])
            lags = base + turn * item.own + past - np.array(self.starts[here])
            found.append(np.where(blind, -1, lags))
        if any((one != found[0]).any() for one in found):
            raise Unproved(f"the order of rounds of the block at command {item.at} does not settle")


def lags_of(items: Sequence[StoredItem], case: RoundsCase, segments: Sequence[int]) -> Lags:
    """The clocks of few rounds. `segments`: items in front of which the host waits for everything. Unproved
    where they do not settle, or a command waits for one behind it."""
    return _Clocks(items, case, segments).run()
