"""Estimates candidates by coarse jobs: parts of a group tile by tile, groups of a plan.

What a job waits for is as in `schedule/time.py`: the one before it in its queue, and those that it names.
Jobs here need no banks and never share the bus, so that one pass in their order finds what the timetable
finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from npuflow.ir.space import Box, Tile, elements
from npuflow.schedule import tuned
from npuflow.schedule.accesses import meet
from npuflow.schedule.choice import Costs, TileChoice
from npuflow.schedule.cycles import gather_cycles
from npuflow.schedule.frame import Frame
from npuflow.schedule.geometry import Member
from npuflow.schedule.joined import copies_nothing
from npuflow.schedule.machine import Machine
from npuflow.schedule.parts import tile_cycles, tiles_of

CoarseJob = tuple[int, float, Sequence[int]]     # its queue, its cycles, the jobs that it waits for


def ends_of(jobs: Iterable[CoarseJob], queues: int) -> list[float]:
    """When each job ends. None waits for a later one; bytes move in the cycles of one queue."""
    free, ends = [0.0] * queues, list[float]()
    for queue, cycles, after in jobs:
        begin = free[queue]
        for other in after:
            if ends[other] > begin:
                begin = ends[other]
        free[queue] = begin + cycles
        ends.append(free[queue])
    return ends


Boxes = Sequence[tuple[str, Box]]         # of values
LOADS, ARRAY, VECTOR, STORES, OTHERS = range(5)     # queues


@dataclass(frozen=True)
class Tiles:
    """A part's tiles under one choice: cycles of each queue, and whether it waits for other cores; the boxes
    made, and loads of constants."""

    tiles: tuple[Tile, ...]
    costs: tuple[tuple[float, int, int, int, bool], ...]     # load, gather, array, vector, waits
    made: tuple[Box, ...]
    pieces: int
    number: int                           # of these tiles among all of a core
    work: float                           # of the array, or of the vector unit where there is none


class CoarseSchedule:
    """A group's parts in the windows of one core. `late`: boxes of values that other cores hand on."""

    def __init__(self, frame: Frame, windows: Sequence[Tile], machine: Machine, late: Boxes) -> None:
        self.windows, self.machine, self.members, self.late = windows, machine, frame.members, late
        self.maker = {v: p for p, m in enumerate(self.members) for v in m.outputs}
        self.before = [{self.maker.get(v, p) for v, _ in m.inputs} - {p} for p, m in enumerate(self.members)]
        self.width = machine.activation_width / frame.group.cores[1]
        c, d, rate = machine.compute, machine.dma, machine.memory.external_bandwidth
        moved = (
            sum(elements(box) * frame.item(v) for v, box in late)
            * frame.group.cores[1]
            / rate
            * tuned.BORDER_BUS
        )
        self.handed = (1 + len(late)) * (d.setup_cycles + c.command_cycles) + c.command_cycles + 2 * moved
        self._tiles: dict[tuple[int, TileChoice], Tiles] = {}
        self._needs: dict[tuple[int, int], list[int]] = {}

    def tiles(self, p: int, choice: TileChoice) -> Tiles:
        if (p, choice) not in self._tiles:
            self._tiles[p, choice] = self._found(p, choice)
        return self._tiles[p, choice]

    def end(self, parts: Sequence[Tiles]) -> float:
        """When array and vector unit are through."""
        return max(ends_of(self.jobs(parts), OTHERS + 1)[1:])

    def jobs(self, parts: Sequence[Tiles]) -> list[CoarseJob]:
        """Of every tile a load, columns, array and vector unit; in front, what other cores hand on."""
        found: list[CoarseJob] = [(OTHERS, self.handed, ())]
        last: list[list[int]] = []         # by part, the last job of each tile
        for p, own in enumerate(parts):
            makers = [(last[q], self._needed(p, own, q, parts[q])) for q in self.before[p]]
            mine: list[int] = []
            for i, (fetch, gather, array, vector, waits) in enumerate(own.costs):
                ready = [their[at[i]] for their, at in makers if at[i] >= 0]
                if waits:
                    ready.append(0)
                free = mine[i - 2 : i - 1]            # of two slots, the one that it takes
                if fetch:
                    ready.append(len(found))
                    found.append((LOADS, fetch, free))
                if gather:
                    found.append((VECTOR, gather, ready))
                    ready = [len(found) - 1]
                if array:
                    found.append((ARRAY, array, ready + free))
                    ready = [len(found) - 1]
                if vector:
                    found.append((VECTOR, vector, ready))
                elif copies_nothing(self.members[p].spaces[0]):     # others wait for what it joins
                    found.append((OTHERS, 0, ready))
                mine.append(len(found) - 1)
            last.append(mine)
        return found

    def _found(self, p: int, choice: TileChoice) -> Tiles:
        member, window, c, d = self.members[p], self.windows[p], self.machine.compute, self.machine.dma
        layer = member.layer
        tiles = tuple(tiles_of(window, row_by_row(choice) if copies_nothing(member.spaces[0]) else choice))
        ends = [(a.name, window[a.name][1]) for a in layer.axes if a.kind == "sum"]
        streams = [r for s in layer.streams for r in s.refs if r.home == "input"]
        front = len(streams) * (c.command_cycles + d.setup_cycles)
        known: dict[tuple[object, ...], tuple[int, int, int]] = {}
        costs = []
        for tile in tiles:
            done = all(tile[a][1] == size for a, size in ends)
            kind = *(b - a for a, b in tile.values()), done
            if kind not in known:
                array, vector = tile_cycles(member, tile, done, c)
                gather = sum(gather_cycles(member.spaces[0], tile, c)) if layer.gathers else 0
                known[kind] = gather, array, sum(vector)
            size = sum(elements(r.operand.box(tile)) * r.itemsize for r in streams)
            costs.append((front + size / self.width, *known[kind], self._waits(member, tile)))
        work = float(max(sum(x[2] for x in costs), sum(x[3] for x in costs) if layer.mac is None else 0))
        made = tuple(layer.space.outputs[0].box(tile) for tile in tiles)
        return Tiles(tiles, tuple(costs), made, self._pieces(p, choice), len(self._tiles), work)

    def _pieces(self, p: int, choice: TileChoice) -> int:
        """Loads of constants: of those that the same axes cut, one a tile."""
        sizes, layer = dict(choice.sizes), self.members[p].layer
        counts = {a: ceil((high - low) / sizes[a]) for a, (low, high) in self.windows[p].items()}
        consts = [s for s in layer.streams if s.home == "const"]
        return sum(
            {
                frozenset(a for a in s.axes if counts[a] > 1): prod(counts[a] for a in s.axes) for s in consts
            }.values()
        )

    def _waits(self, member: Member, tile: Tile) -> bool:
        return any(
            meet(ref.operand.box(tile), box)
            for value, ref in member.inputs
            for v, box in self.late
            if v == value
        )

    def _needed(self, p: int, now: Tiles, q: int, before: Tiles) -> list[int]:
        """For every tile of a part, the last tile of an earlier one that makes some of what it reads."""
        key = now.number, before.number
        if key not in self._needs:
            refs = [r for v, r in self.members[p].inputs if self.maker.get(v) == q]
            found = []
            for tile in now.tiles:
                boxes = [r.operand.box(tile) for r in refs]
                last = len(before.made) - 1
                while last >= 0 and not any(meet(b, before.made[last]) for b in boxes):
                    last -= 1
                found.append(last)
            self._needs[key] = found
        return self._needs[key]


def row_by_row(choice: TileChoice) -> TileChoice:
    """Tiles of a row each, of a part that does nothing: what reads its result waits for those rows alone."""
    names = [name for name, _ in choice.sizes]
    sizes = tuple((name, 1 if at == 2 else size) for at, (name, size) in enumerate(choice.sizes))
    return replace(choice, sizes=sizes, order=tuple(names), begin=("", 0))


def end_of(groups: Sequence[Costs], room: float) -> float:
    """When a plan's groups are through, by their estimates.

    `room`: bytes of constants that may wait in local memory. What a group reads from external memory, other
    than constants, is there when the group before has stored it.
    """
    jobs: list[CoarseJob] = []
    done: list[int] = []                   # of each group, the last computation
    stored: tuple[int, ...] = ()
    for g, c in enumerate(groups):
        first, held = g, c.const
        while first and held + groups[first - 1].const <= room:
            first -= 1
            held += groups[first].const
        jobs.append((LOADS, c.early, done[first - 1 : first]))
        if c.head > c.early:
            jobs.append((LOADS, c.head - c.early, stored))
        fed, tail = len(jobs) - 1, min(c.tail, c.compute)
        jobs.append((ARRAY, c.compute - tail, (fed,)))
        jobs.append((LOADS, max(0.0, c.load - max(c.head, c.early)), ()))
        jobs.append((ARRAY, tail, (len(jobs) - 1,)))
        done.append(len(jobs) - 1)
        if c.store:
            jobs.append((STORES, c.store, ()))
            jobs.append((STORES, 0.0, done[-1:]))
            stored = (len(jobs) - 1,)
    return max(ends_of(jobs, OTHERS), default=0.0)
