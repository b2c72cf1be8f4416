"""Combines tiles of a group's parts, so that array and vector unit overlap.
While the vector unit ends one part, the array is at the next.

The search tiles every part by itself, as if nothing came before or behind; so it pays for many tiles where
the part behind would hide what they hide. Here the parts run through the coarse jobs of `coarse.py`, and each
part's tiles are drawn anew as long as the group ends earlier on the cores that have most to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import ceil, prod

import numpy as np

from npuflow.ir.space import Axis, Tile
from npuflow.schedule import tuned
from npuflow.schedule.choice import TileChoice
from npuflow.schedule.frame import Frame
from npuflow.schedule.geometry import Border, Member
from npuflow.schedule.groups import FusionGroup
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import Layer
from npuflow.search.coarse import Boxes, CoarseSchedule, Tiles
from npuflow.search.cost import CandidateGrid, traffic
from npuflow.search.tilings import footprint, reverses, slot_counts


class Overlap:
    """Groups of one plan; what was found for one is taken for its equals."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.known: dict[object, tuple[TileChoice, ...]] = {}

    def better(self, frame: Frame, borders: Sequence[Border] = ()) -> FusionGroup:
        """The group with tiles that overlap better, or as it is. `borders`: that its cores load before it."""
        group = frame.group
        if frame.moves or group.strips or any(p.choice is None for p in group.parts):
            return group
        cores: dict[object, CoarseSchedule] = {}
        work = [
            sum(_volume(w) for w in frame.strips[c][0].windows if w is not None)
            for c in range(group.cores[1])
        ]
        for core in sorted(range(group.cores[1]), key=lambda c: -work[c]):
            windows = [w for w in frame.strips[core][0].windows if w is not None]
            if len(windows) < len(group.parts):
                return group
            if work[core] < tuned.OVERLAP_BUSY * max(work) or len(cores) == tuned.OVERLAP_CORES:
                break
            late = [(b.value, b.box) for b in borders if core in b.targets]
            key = (
                tuple(tuple((a, b - a_) for a, (a_, b) in w.items()) for w in windows),
                _lie(frame.members, windows, late),
            )
            cores.setdefault(key, CoarseSchedule(frame, windows, self.machine, late))
        layers = tuple((m.layer, p.choice) for m, p in zip(frame.members, group.parts, strict=True))
        whole = layers, _links(frame.members), tuple(cores)
        if whole not in self.known:
            self.known[whole] = _Draw(frame, list(cores.values()), self.machine).settled()
        parts = (replace(p, choice=c) for p, c in zip(group.parts, self.known[whole], strict=True))
        return replace(group, parts=tuple(parts))


def _links(members: Sequence[Member]) -> tuple[tuple[int, ...], ...]:
    """Of every part, those that make what it reads."""
    maker = {v: p for p, m in enumerate(members) for v in m.outputs}
    return tuple(tuple(maker[v] for v, _ in m.inputs if maker.get(v, p) < p) for p, m in enumerate(members))


def _lie(members: Sequence[Member], windows: Sequence[Tile], late: Boxes) -> object:
    """Which parts read what comes late, and where in their windows it lies."""
    found = []
    for p, (member, window) in enumerate(zip(members, windows, strict=True)):
        for value, ref in member.inputs:
            mine, boxes = ref.operand.box(window), [box for v, box in late if v == value]
            found += [
                (p, tuple((a - c, b - c) for (a, b), (c, _) in zip(box, mine, strict=True))) for box in boxes
            ]
    return tuple(found)


class _Draw:
    """Tilings of a group's parts, one part after the other, by when the last of some cores is through."""

    def __init__(self, frame: Frame, cores: Sequence[CoarseSchedule], machine: Machine) -> None:
        self.frame, self.cores, self.machine = frame, cores, machine
        self.piece = tuned.CONSTANT_PIECE * (machine.dma.setup_cycles + machine.compute.command_cycles)

    def settled(self) -> tuple[TileChoice, ...]:
        now = [p.choice for p in self.frame.group.parts if p.choice is not None]
        best = self._end(now)
        options = [self._options(p, choice) for p, choice in enumerate(now)]
        for _ in range(tuned.OVERLAP_SWEEPS):
            before = best
            for p, tried in enumerate(options):
                for other in tried:
                    trial = [*now[:p], other, *now[p + 1 :]]
                    end = self._end(trial, best)
                    if end < best:
                        best, now = end, trial
            if best >= before * tuned.OVERLAP_GAIN:
                break
        return tuple(now)

    def _end(self, choices: Sequence[TileChoice], most: float = float("inf")) -> float:
        """When the last core is through; loads of constants count a little. Beyond
        `most` it does not matter when."""
        found = 0.0
        for core in self.cores:
            parts = [core.tiles(p, c) for p, c in enumerate(choices)]
            found = max(found, core.end(parts) + self.piece * sum(t.pieces for t in parts))
            if found >= most:
                break
        return found

    def _options(self, p: int, choice: TileChoice) -> list[TileChoice]:
        layer, first = self.frame.layers[p], self.cores[0]
        if layer.gathers or not _stay(layer, choice):
            return []
        room = max(choice.local_bytes, self.machine.memory.local_bytes // 8)
        found: list[tuple[TileChoice, Tiles]] = [
            (c, first.tiles(p, c)) for c in _choices(layer, self.machine) if c.local_bytes <= room
        ]
        least = min((t.work for _, t in found), default=0.0)
        return [c for c, t in found if t.work <= tuned.OVERLAP_WORK * least]


def _choices(layer: Layer, machine: Machine) -> Iterator[TileChoice]:
    """Few and even tiles of a layer, constants all there: channels outside positions, or
    positions outside channels."""
    names = [a.name for a in layer.axes]
    sizes = [_sizes(layer, a, machine) for a in layer.axes]
    counted = [(d, [-(-a.size // s) for a, s in zip(layer.axes, d, strict=True)]) for d in product(*sizes)]
    few = [(drawn, counts) for drawn, counts in counted if prod(counts) <= tuned.OVERLAP_TILES]
    grid = CandidateGrid(
        {n: np.array([drawn[i] for drawn, _ in few], np.int64) for i, n in enumerate(names)},
        {n: np.array([counts[i] for _, counts in few], np.int64) for i, n in enumerate(names)},
        len(few),
    )
    moved = traffic(layer, machine, grid)
    slots = slot_counts(
        layer, moved, ["there" if s.home == "const" else "double" for s in layer.streams], grid
    )
    used = footprint(grid, moved, slots)
    for i, (drawn, counts) in enumerate(few):
        split = [n for n, k, a in zip(names, counts, layer.axes, strict=True) if k > 1 and a.kind != "sum"]
        sums = [n for n, k, a in zip(names, counts, layer.axes, strict=True) if k > 1 and a.kind == "sum"]
        idle = [n for n, k in zip(names, counts, strict=True) if k == 1]
        for nesting in dict.fromkeys((tuple(split), (*split[1:], *split[:1]))):
            order = (*idle, *nesting, *sums)
            plain = TileChoice(
                tuple(zip(names, drawn, strict=True)), order, tuple(int(s[i]) for s in slots), int(used[i])
            )
            yield plain
            rows = [m.axis for m in layer.space.outputs[0].maps][2:3]
            if rows and rows[0] in split and counts[names.index(rows[0])] > 2:
                ways = (1, -1) if reverses(layer, layer.space.axis(rows[0])) else (1,)
                yield from (replace(plain, begin=(rows[0], first)) for first in ways)


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
    found = {min(axis.size, -(-ceil(axis.size / n) // unit) * unit) for n in tuned.OVERLAP_COUNTS[kind]}
    return sorted(found, reverse=True)


def _stay(layer: Layer, choice: TileChoice) -> bool:
    """Whether all constants of the layer are in local memory at once."""
    sizes = dict(choice.sizes)
    return all(
        n >= prod(-(-layer.space.axis(a).size // sizes[a]) for a in s.axes)
        for s, n in zip(layer.streams, choice.slots, strict=True) if s.home == "const"
    )


def _volume(tile: Tile) -> int:
    return prod(b - a for a, b in tile.values())
