"""Tiles of a group's parts set beside each other: while the vector unit ends one part, the array is at the next.

The search tiles every part by itself, as if nothing came before or behind; so it pays for many tiles where the part behind
would hide what they hide. Here the parts of one strip run through a timetable of three queues, tile by tile, and each
part's tiles are drawn anew as long as the group ends earlier.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import ceil, prod

import numpy as np

from npuflow.engine.closed.part import tiles_of
from npuflow.engine.closed.tile import array_cycles, extents_of, gather_cycles, vector_cycles
from npuflow.engine.tiling.borders import Border
from npuflow.engine.tiling.cost import Grid, Machine, traffic
from npuflow.engine.tiling.frame import Frame
from npuflow.engine.tiling.geometry import Member
from npuflow.engine.tiling.groups import Group
from npuflow.engine.tiling.model import Layer, follower_ranges
from npuflow.engine.tiling.search import Choice, footprint, slot_counts
from npuflow.ir.space import Axis, Box, Tile, elements

COUNTS = {"channels": (1, 2, 3, 4), "rows": (1, 2, 3, 4), "columns": (1, 2), "sums": (1, 2)}
MOST = 8                                  # tiles of a part
SLACK = 1.3                               # of the fewest array cycles of a part, for a tiling that is tried
SWEEPS = 2
BUSY = 2.0                                # what comes from other cores finds the bus busy
PIECE = 0.25                              # of a load's set-up, where the bus has time to spare


@dataclass(frozen=True)
class _Tiles:
    """A part's tiles under one choice: cycles of each queue, the boxes that each makes, and loads of constants."""

    choice: Choice
    loads: tuple[float, ...]
    gathers: tuple[int, ...]
    array: tuple[int, ...]
    vector: tuple[int, ...]
    made: tuple[Box, ...]
    begins: tuple[float, ...]             # when all that comes from other cores is there
    tiles: tuple[Tile, ...]
    pieces: int

    @cached_property
    def work(self) -> float:
        return float(sum(self.array))


class Overlap:
    """Groups of one plan; what was found for one is taken for its equals."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.known: dict[object, tuple[Choice, ...]] = {}

    def better(self, frame: Frame, borders: Sequence[Border] = ()) -> Group:
        """The group with tiles that overlap better, or as it is. `borders`: that its cores load before it."""
        group = frame.group
        if frame.moves or group.strips or any(p.choice is None for p in group.parts):
            return group
        core = max(range(group.cores[1]), key=lambda c: sum(_volume(w) for w in frame.strips[c][0].windows if w is not None))
        windows = frame.strips[core][0].windows
        if any(w is None for w in windows):
            return group
        layers = tuple(
            (m.layer, tuple((a, b - a_) for a, (a_, b) in w.items()), p.choice)
            for m, w, p in zip(frame.members, windows, group.parts, strict=True) if w is not None
        )  # fmt: skip
        late = [(b.value, b.box) for b in borders if core in b.targets]
        key = layers, _links(frame.members), _placed(frame.members, windows, late)
        if key not in self.known:
            self.known[key] = _Group(frame, [w for w in windows if w is not None], self.machine, late).settled()
        parts = (replace(p, choice=c) for p, c in zip(group.parts, self.known[key], strict=True))
        return replace(group, parts=tuple(parts))


def _links(members: Sequence[Member]) -> tuple[tuple[int, ...], ...]:
    """Of every part, those that make what it reads."""
    maker = {v: p for p, m in enumerate(members) for v in m.outputs}
    return tuple(tuple(maker[v] for v, _ in m.inputs if maker.get(v, p) < p) for p, m in enumerate(members))


def _placed(members: Sequence[Member], windows: Sequence[Tile | None], late: Sequence[tuple[str, Box]]) -> object:
    """Which parts read what comes late, and where in their windows it lies."""
    found = []
    for p, (member, window) in enumerate(zip(members, windows, strict=True)):
        for value, ref in member.inputs:
            mine = ref.operand.box(window) if window is not None else ()
            boxes = [box for v, box in late if v == value]
            found += [(p, tuple((a - c, b - c) for (a, b), (c, _) in zip(box, mine, strict=True))) for box in boxes]
    return tuple(found)


class _Group:
    """The parts of a group on its busiest core. `late`: boxes of values that other cores hand on."""

    def __init__(self, frame: Frame, windows: Sequence[Tile], machine: Machine, late: Sequence[tuple[str, Box]]) -> None:
        self.frame, self.windows, self.machine, self.members = frame, windows, machine, frame.members
        self.maker = {v: p for p, m in enumerate(self.members) for v in m.outputs}
        self.width = machine.activation_width / frame.group.cores[1]
        costs = frame.group.costs
        self.piece = (machine.dma.setup_cycles + machine.compute.command_cycles) * (
            1.0 if costs.bus > max(costs.tensor, costs.vector) else PIECE
        )
        c, d, rate = machine.compute, machine.dma, machine.memory.external_bandwidth
        moved = sum(elements(box) * frame.item(v) for v, box in late) * frame.group.cores[1] / rate * BUSY
        self.late, self.handed = late, (1 + len(late)) * (d.setup_cycles + c.command_cycles) + c.command_cycles + 2 * moved
        self._needs: dict[tuple[int, Choice, int, Choice], list[int]] = {}

    def settled(self) -> tuple[Choice, ...]:
        now: list[_Tiles] = []
        for p, part in enumerate(self.frame.group.parts):
            assert part.choice is not None
            now.append(self._tiles(p, part.choice))
        best = self._end(now)
        options = [list(self._options(p, t)) for p, t in enumerate(now)]
        for _ in range(SWEEPS):
            before = best
            for p, tried in enumerate(options):
                for other in tried:
                    trial = [*now[:p], other, *now[p + 1 :]]
                    end = self._end(trial)
                    if end < best:
                        best, now = end, trial
            if best >= before * 0.995:
                break
        return tuple(t.choice for t in now)

    # --- one part's tiles
    def _options(self, p: int, now: _Tiles) -> list[_Tiles]:
        layer, choice = self.frame.layers[p], now.choice
        if layer.gathers or not _stay(layer, choice):
            return []
        room = max(choice.local_bytes, self.machine.memory.local_bytes // 8)
        found = [self._tiles(p, c) for c in _choices(layer, self.machine) if c.local_bytes <= room]
        least = min((t.work for t in found), default=0.0)
        return [t for t in found if t.work <= SLACK * least]

    def _tiles(self, p: int, choice: Choice) -> _Tiles:
        member, window, c = self.members[p], self.windows[p], self.machine.compute
        layer = member.layer
        tiles = tuple(tiles_of(window, choice))
        ends = [(a.name, window[a.name][1]) for a in layer.axes if a.kind == "sum"]
        known: dict[tuple[object, ...], tuple[int, int, int]] = {}
        loads, begins, made = [], [], []
        array: list[int] = []
        vector: list[int] = []
        gathers: list[int] = []
        streams = [r for s in layer.streams for r in s.refs if r.home == "input"]
        d = self.machine.dma
        for tile in tiles:
            done = all(tile[a][1] == size for a, size in ends)
            kind = *(b - a for a, b in tile.values()), done
            if kind not in known:
                nodes = range(len(member.sites) if done else int(layer.mac is None))
                own = [tile if not k else follower_ranges(layer.space, member.spaces[k], tile) for k in nodes]
                known[kind] = (
                    array_cycles(layer, extents_of(tile), c),
                    sum(vector_cycles(member.spaces[k], t, done, c) for k, t in enumerate(own)),
                    sum(gather_cycles(member.spaces[0], tile, c)) if layer.gathers else 0,
                )
            a, v, g = known[kind]
            size = sum(elements(r.operand.box(tile)) * r.itemsize for r in streams)
            loads.append(len(streams) * (c.command_cycles + d.setup_cycles) + size / self.width)
            begins.append(self.handed if self._waits(member, tile) else 0.0)
            for found, one in ((array, a), (vector, v), (gathers, g)):
                found.append(one)
            made.append(layer.space.outputs[0].box(tile))
        consts = [s for s in layer.streams if s.home == "const"]
        counts = {a: ceil((b - a_) / dict(choice.sizes)[a]) for a, (a_, b) in window.items()}
        pieces = sum({frozenset(a for a in s.axes if counts[a] > 1): prod(counts[a] for a in s.axes) for s in consts}.values())
        return _Tiles(choice, tuple(loads), tuple(gathers), tuple(array), tuple(vector), tuple(made), tuple(begins), tiles,
                      pieces)

    def _waits(self, member: Member, tile: Tile) -> bool:
        return any(_meet(ref.operand.box(tile), box) for value, ref in member.inputs for v, box in self.late if v == value)

    def _needed(self, p: int, now: _Tiles, q: int, before: _Tiles) -> list[int]:
        """For every tile of a part, the last tile of an earlier one that makes some of what it reads."""
        key = p, now.choice, q, before.choice
        if key not in self._needs:
            refs = [r for v, r in self.members[p].inputs if self.maker.get(v) == q]
            found = []
            for tile in now.tiles:
                boxes = [r.operand.box(tile) for r in refs]
                found.append(max((i for i, m in enumerate(before.made) if any(_meet(b, m) for b in boxes)), default=-1))
            self._needs[key] = found
        return self._needs[key]

    # --- the group in time
    def _end(self, parts: Sequence[_Tiles]) -> float:
        load = array = vector = 0.0
        ends: list[list[float]] = []       # by part, when the vector unit is through with each tile
        for p, own in enumerate(parts):
            before = {self.maker.get(v, p) for v, _ in self.members[p].inputs} - {p}
            makers = [(q, self._needed(p, own, q, parts[q])) for q in before]
            through: list[float] = []
            for i, (a, v) in enumerate(zip(own.array, own.vector, strict=True)):
                ready = max((ends[q][at[i]] for q, at in makers if at[i] >= 0), default=own.begins[i])
                ready = max(ready, own.begins[i])
                if own.loads[i]:
                    load = max(load, through[i - 2] if i > 1 else 0.0) + own.loads[i]
                    ready = max(ready, load)
                if own.gathers[i]:
                    vector = ready = max(vector, ready) + own.gathers[i]
                if a:
                    array = ready = max(array, ready, through[i - 2] if i > 1 else 0.0) + a
                if v:
                    vector = ready = max(vector, ready) + v
                through.append(ready)
            ends.append(through)
        return max(array, vector) + self.piece * sum(t.pieces for t in parts)


def _choices(layer: Layer, machine: Machine) -> Iterator[Choice]:
    """Few and even tiles of a layer, constants all there: channels outside positions, or positions outside channels."""
    names = [a.name for a in layer.axes]
    sizes = [_sizes(layer, a, machine) for a in layer.axes]
    for drawn in product(*sizes):
        counts = [-(-a.size // s) for a, s in zip(layer.axes, drawn, strict=True)]
        if prod(counts) > MOST:
            continue
        grid = Grid({n: np.array([s], np.int64) for n, s in zip(names, drawn, strict=True)},
                    {n: np.array([k], np.int64) for n, k in zip(names, counts, strict=True)}, 1)  # fmt: skip
        moved = traffic(layer, machine, grid)
        slots = slot_counts(layer, moved, ["there" if s.home == "const" else "double" for s in layer.streams], grid)
        used = int(footprint(layer, machine, moved, slots)[0])
        split = [n for n, k, a in zip(names, counts, layer.axes, strict=True) if k > 1 and a.kind != "sum"]
        sums = [n for n, k, a in zip(names, counts, layer.axes, strict=True) if k > 1 and a.kind == "sum"]
        idle = [n for n, k in zip(names, counts, strict=True) if k == 1]
        for nesting in {tuple(split), tuple(split[1:] + split[:1])} if len(split) > 1 else {tuple(split)}:
            order = (*idle, *nesting, *sums)
            plain = Choice(tuple(zip(names, drawn, strict=True)), order, tuple(int(s[0]) for s in slots), used)
            yield plain
            rows = [m.axis for m in layer.space.outputs[0].maps][2:3]
            if rows and rows[0] in split and counts[names.index(rows[0])] > 2:
                yield replace(plain, begin=(rows[0], 1))


def _sizes(layer: Layer, axis: Axis, machine: Machine) -> list[int]:
    mac, c = layer.mac, machine.compute
    if axis.kind == "whole" or axis.size <= axis.multiple:
        return [axis.size]
    places = [m.axis for m in layer.space.outputs[0].maps][2:]
    kind = "sums" if axis.kind == "sum" else "rows" if axis.name in places else "channels"
    kind = "columns" if kind == "rows" and axis.name == places[-1] else kind
    unit = axis.multiple
    if mac is not None and axis.name in (mac.cols, mac.rows):
        array = c.array_cols if axis.name == mac.cols else c.array_rows
        unit = max(unit, array // unit * unit)
    found = {min(axis.size, -(-ceil(axis.size / n) // unit) * unit) for n in COUNTS[kind]}
    return sorted(found, reverse=True)


def _stay(layer: Layer, choice: Choice) -> bool:
    """Whether all constants of the layer are in local memory at once."""
    sizes = dict(choice.sizes)
    return all(
        n >= prod(-(-layer.space.axis(a).size // sizes[a]) for a in s.axes)
        for s, n in zip(layer.streams, choice.slots, strict=True) if s.home == "const"
    )  # fmt: skip


def _meet(a: Box, b: Box) -> bool:
    return all(p < s and r < q for (p, q), (r, s) in zip(a, b, strict=True))


def _volume(tile: Tile) -> int:
    return prod(b - a for a, b in tile.values())

