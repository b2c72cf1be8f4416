"""One strip of a group on one core in time, tile by tile: loads, array and vector unit, and
what other cores hand on late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from npuflow.engine.schedule import tuned
from npuflow.engine.schedule.accesses import meet
from npuflow.engine.schedule.choice import Choice
from npuflow.engine.schedule.cycles import array_cycles, extents_of, gather_cycles, vector_cycles
from npuflow.engine.schedule.frame import Frame
from npuflow.engine.schedule.geometry import Member
from npuflow.engine.schedule.machine import Machine
from npuflow.engine.schedule.model import follower_ranges
from npuflow.engine.schedule.parts import tiles_of
from npuflow.ir.space import Box, Tile, elements

Boxes = Sequence[tuple[str, Box]]         # of values


@dataclass(frozen=True)
class Tiles:
    """A part's tiles under one choice: cycles of each queue, when all that comes from other cores is there,
    the boxes made, and loads of constants."""

    tiles: tuple[Tile, ...]
    costs: tuple[tuple[float, int, int, int, float], ...]     # load, gather, array, vector, begin
    made: tuple[Box, ...]
    pieces: int
    number: int                           # of these tiles among all of a core
    work: float                           # of the array, or of the vector unit where there is none


class Course:
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
        self._tiles: dict[tuple[int, Choice], Tiles] = {}
        self._needs: dict[tuple[int, int], list[int]] = {}

    def tiles(self, p: int, choice: Choice) -> Tiles:
        if (p, choice) not in self._tiles:
            self._tiles[p, choice] = self._found(p, choice)
        return self._tiles[p, choice]

    def end(self, parts: Sequence[Tiles]) -> float:
        """When array and vector unit are through."""
        load = array = vector = 0.0
        ends: list[list[float]] = []       # by part, when the vector unit is through with each tile
        for p, own in enumerate(parts):
            makers = [(ends[q], self._needed(p, own, q, parts[q])) for q in self.before[p]]
            through: list[float] = []
            for i, (fetch, g, a, v, ready) in enumerate(own.costs):
                for their, at in makers:
                    if at[i] >= 0 and their[at[i]] > ready:
                        ready = their[at[i]]
                free = through[i - 2] if i > 1 else 0.0
                if fetch:
                    load = max(load, free) + fetch
                    ready = max(ready, load)
                if g:
                    vector = ready = max(vector, ready) + g
                if a:
                    array = ready = max(array, ready, free) + a
                if v:
                    vector = ready = max(vector, ready) + v
                through.append(ready)
            ends.append(through)
        return max(array, vector)

    def _found(self, p: int, choice: Choice) -> Tiles:
        member, window, c, d = self.members[p], self.windows[p], self.machine.compute, self.machine.dma
        layer, tiles = member.layer, tuple(tiles_of(window, choice))
        ends = [(a.name, window[a.name][1]) for a in layer.axes if a.kind == "sum"]
        streams = [r for s in layer.streams for r in s.refs if r.home == "input"]
        known: dict[tuple[object, ...], tuple[int, int, int]] = {}
        costs = []
        for tile in tiles:
            done = all(tile[a][1] == size for a, size in ends)
            kind = *(b - a for a, b in tile.values()), done
            if kind not in known:
                nodes = range(len(member.sites) if done else int(layer.mac is None))
                own = [tile if not k else follower_ranges(layer.space, member.spaces[k], tile) for k in nodes]
                known[kind] = (
                    sum(gather_cycles(member.spaces[0], tile, c)) if layer.gathers else 0,
                    array_cycles(layer, extents_of(tile), c),
                    sum(vector_cycles(member.spaces[k], t, done, c) for k, t in enumerate(own)),
                )
            size = sum(elements(r.operand.box(tile)) * r.itemsize for r in streams)
            load = len(streams) * (c.command_cycles + d.setup_cycles) + size / self.width
            costs.append((load, *known[kind], self.handed if self._waits(member, tile) else 0.0))
        work = max(
            float(sum(x[2] for x in costs)), float(sum(x[3] for x in costs)) if layer.mac is None else 0.0
        )
        made = tuple(layer.space.outputs[0].box(tile) for tile in tiles)
        return Tiles(tiles, tuple(costs), made, self._pieces(p, choice), len(self._tiles), work)

    def _pieces(self, p: int, choice: Choice) -> int:
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
