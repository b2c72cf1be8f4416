"""Proves from the stored words that no number of rounds of any block has a hazard.

What is compared. A command knows that commands of other queues have retired; those that it does not know of
are the last ones of each queue, as many as its lag says (lags.py). For all numbers of rounds that leave the
same blocks short, lags are the same, so that few rounds of each long block stand for all: its last round for
all that follow, its rounds counted from the end for what is behind the block. Each pair of commands that no
wait orders is compared over all rounds that it stands for: addresses go on evenly, and whether two regions
share a byte depends on the difference of their addresses. A pair of which nothing is known is compared over
all rounds of both.
Numbers that leave a block short are cases of their own, in which its rounds stand one by one.

What is not. Bytes that nothing has written, and addresses out of bounds: the expansion of the most rounds has
every address that another has. Several cores, blocks at an index, queues of 2^15 commands, and steps of other
words than addresses are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from npuflow.hw.region import DATA, Region
from npuflow.program.container import Program
from npuflow.program.counts import READ
from npuflow.program.repeats import Ints
from npuflow.sim.hazards import overlaps, share
from npuflow.sim.lags import REACH, Lags, RoundsCase, lags_of
from npuflow.sim.templates import MovingRegion, StoredItem, Unproved, items_of, numbers_of

FEW = (REACH + 3, REACH + 6, REACH + 10)   # rounds of a block that are looked at, until their order settles
ROUNDS = 1 << 21                           # pairs of rounds that one pair of regions is compared over
APART = 1 << 12                            # differences of their addresses


@dataclass(frozen=True)
class RoundsProof:
    """`proved`: for every number of rounds, or `why` not. `distance`: rounds behind it that a command may
    overlap with, where it waits for their queue; `numbers`: kinds of numbers of rounds there are; `cases`:
    judged together; `pairs`: of regions whose bytes were compared."""

    proved: bool
    why: str = ""
    distance: int = 0
    numbers: int = 0
    cases: int = 0
    pairs: int = 0


def proof_of_rounds(program: Program) -> RoundsProof:
    """Whether no two commands may touch the same byte in an order that no wait fixes, in any number of rounds
    that the program may run."""
    words = program.stored or program.commands
    if len(words) != 1:
        return RoundsProof(False, f"commands of {len(words)} cores wait for each other")
    try:
        items = items_of(words[0], 0)
        segments = _segments(program, items)
        _alone(program, items)
        numbers = [turns for _, turns in numbers_of(items)]
        return _proved(items, numbers, segments)
    except Unproved as reason:
        return RoundsProof(False, str(reason))


def _proved(
    items: Sequence[StoredItem], numbers: Sequence[tuple[range, ...]], segments: Sequence[int]
) -> RoundsProof:
    reason = Unproved("no block has rounds")
    for few in FEW:
        distance = pairs = 0
        cases = _cases(items, numbers, few)
        try:
            for case in cases:
                found = _Compared(items, case, lags_of(items, case, segments))
                found.run()
                distance, pairs = max(distance, found.distance), pairs + found.pairs
            return RoundsProof(True, "", distance, len(numbers), len(cases), pairs)
        except Unproved as why:
            reason = why
    raise reason


def _segments(program: Program, items: Sequence[StoredItem]) -> list[int]:
    """Items in front of which the host waits for all commands."""
    begins = np.cumsum([0, *(len(i.commands) * i.count for i in items)]).tolist()
    found, done = list[int](), 0
    for step in program.meta["steps"]:
        if step["kind"] == "npu":
            if step["first"][0] != done or done not in begins:
                raise Unproved(f"a step of the program begins at command {step['first'][0]}, in a block")
            found.append(begins.index(done))
            done += step["count"][0]
    if done != begins[-1]:
        raise Unproved("the program's steps leave commands out")
    return found


def _alone(program: Program, items: Sequence[StoredItem]) -> None:
    """No command has operands that overlap, or writes a number that a REPEAT reads, in any round."""
    counts = [int(one["address"]) for key in READ for one in program.meta.get(key, ())]
    for item in items:
        for row, touched in enumerate(item.touched):
            alike = len({t.step for t in touched if t.region.space != DATA}) < 2
            for turn in range(1 if alike else item.count):
                regions = [t.at(turn) for t in touched]
                if any(True for _ in overlaps(item.commands[row].opcode, regions, (0, row))):
                    raise Unproved(f"{_name(item, row)} has operands that overlap")
            for t in (t for t in touched if t.region.write and t.region.space == DATA):
                low, high = _hull(t, 0, item.count - 1)
                if any(low < a + 4 and a < high for a in counts):
                    raise Unproved(f"{_name(item, row)} may write a number that a REPEAT reads")


def _cases(items: Sequence[StoredItem], numbers: Sequence[tuple[range, ...]], few: int) -> list[RoundsCase]:
    """Numbers of rounds by those of short items."""
    groups: dict[tuple[int, ...], list[tuple[range, ...]]] = {}
    for turns in numbers:
        groups.setdefault(tuple(min(len(t), few) for t in turns), []).append(turns)
    found = []
    for key, members in groups.items():
        rounds = np.array([[len(t) for t in turns] for turns in members], np.int64)
        skipped = np.array([[t.start for t in turns] for turns in members], np.int64)
        found.append(RoundsCase(rounds, skipped, key, tuple((rounds.max(0) > key).tolist())))
    return found


def _name(item: StoredItem, row: int) -> str:
    inside = f"command {row} of the block at {item.at}" if item.repeat is not None else f"command {item.at}"
    return f"{inside} ({item.commands[row].opcode})"


def _hull(touched: MovingRegion, first: int, last: int) -> tuple[int, int]:
    """First byte, and one past the last, of all rounds between two."""
    low, high = touched.region.span
    ends = first * touched.step, last * touched.step
    return low + min(ends), high + max(ends)


class _Compared:
    """Compares all pairs of commands of a case that no wait orders."""

    def __init__(self, items: Sequence[StoredItem], case: RoundsCase, lags: Lags) -> None:
        self.items, self.case, self.lags = items, case, lags
        self.distance = self.pairs = 0
        self.shared: dict[tuple[Region, Region], bool] = {}
        self.touched = list[tuple[int, MovingRegion]]()
        rows = []
        for one, (k, turn, row) in enumerate(zip(lags.item, lags.turn, lags.row, strict=True)):
            item = items[k]
            turns = case.skipped[:, k] + turn
            ends = (0, item.count - 1) if case.long[k] else (int(turns.min()), int(turns.max()))
            for t in item.touched[row]:
                self.touched.append((one, t))
                rows.append((one, t.region.space == DATA, t.region.write, *_hull(t, *ends)))
        self.table = np.array(rows, np.int64).reshape(-1, 5).T

    def run(self) -> None:
        command, data, write, low, high = self.table
        for one in range(len(self.lags.item)):
            before = self.lags.before(one)
            self._far(one, before)
            for r in range(*np.searchsorted(command, (one, one + 1)).tolist()):
                near = before[command] & (data == data[r]) & ((write | write[r]) > 0)
                near &= (low < high[r]) & (low[r] < high)
                for other in np.flatnonzero(near):
                    self._pair(int(other), r)

    def _far(self, one: int, before: Ints) -> None:
        """How many rounds back what a command does not know of lies."""
        lags, k = self.lags, self.lags.item[one]
        if self.case.long[k]:
            seen = before & (lags.item == k) & ~lags.blind[one, lags.queue]
            if seen.any():
                self.distance = max(self.distance, int(lags.turn[one] - lags.turn[seen].min()))

    def _pair(self, first: int, second: int) -> None:
        """Unproved where two regions share a byte in some rounds that they stand for."""
        (one, a), (two, b) = self.touched[first], self.touched[second]
        self.pairs += 1
        for turns in self._rounds(one, two):
            mine, other = (np.asarray(t, np.int64) for t in turns)
            apart = other * b.step - mine * a.step
            (low, high), (lowest, highest) = a.region.span, b.region.span
            near = np.unique(apart[(low < highest + apart) & (lowest + apart < high)])
            if len(near) > APART:
                raise Unproved(self._against(one, two, "lie in each other in too many ways"))
            for far in near:
                if self._share(a.region, b.region, int(far)):
                    raise Unproved(self._against(one, two, "touch the same bytes"))

    def _share(self, a: Region, b: Region, far: int) -> bool:
        moved = Region("", b.space, True, b.address + far, b.size, b.dims, b.strides)
        key = (a, moved)
        if key not in self.shared:
            self.shared[key] = share(a, moved)
        return self.shared[key]

    def _against(self, one: int, two: int, what: str) -> str:
        names = [_name(self.items[self.lags.item[c]], int(self.lags.row[c])) for c in (two, one)]
        return f"no wait orders {names[0]} and {names[1]}, which may {what}"

    def _rounds(self, one: int, two: int) -> Iterator[tuple[Ints, Ints]]:
        """Rounds of two commands, of which the second stands behind the first, in which no wait orders them:
        at least these, as two arrays that go together."""
        lags, case = self.lags, self.case
        a, b = int(lags.item[one]), int(lags.item[two])
        here, there = int(lags.turn[one]), int(lags.turn[two])
        blind = bool(lags.blind[two, lags.queue[one]]) and case.long[a]
        last = case.long[b] and there == case.few[b] - 1
        later = case.skipped[:, b] + there
        if last:
            later = np.arange(int(later.min()), int((case.skipped[:, b] + case.rounds[:, b]).max()))
        if a == b and last:
            if not blind or here == there:
                yield later - (there - here), later
            elif here == 0:
                turns = np.arange(int(later.max()) + 1)
                if turns.size**2 > 2 * ROUNDS:
                    raise Unproved(self._against(one, two, "share bytes in too many rounds to compare"))
                for far in range(1, len(turns)):           # every round in front of every later one
                    yield turns[:-far], turns[far:]
            return
        if a == b or not case.long[a]:
            earlier = case.skipped[:, a] + here
        elif blind:
            if here:
                return                    # the first round stands for all
            earlier = np.arange(self.items[a].count)
        else:
            earlier = case.skipped[:, a] + case.rounds[:, a] - (case.few[a] - here)
        if a == b or not (last or blind):
            yield earlier, later
            return
        earlier, later = np.unique(earlier), np.unique(later)
        if earlier.size * later.size > ROUNDS:
            raise Unproved(self._against(one, two, "share bytes in too many rounds to compare"))
        grid = np.meshgrid(earlier, later)
        yield grid[0].ravel(), grid[1].ravel()
