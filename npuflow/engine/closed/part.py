"""One run of a part over a window, tile by tile: loads as early as slots are free, array and vector unit, stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from npuflow.engine.allocate import aligned
from npuflow.engine.closed.core import Core, Place
from npuflow.engine.closed.tile import array_cycles, extents_of, gather_cycles, vector_cycles
from npuflow.engine.closed.touches import Area
from npuflow.engine.tiling.geometry import Member
from npuflow.engine.tiling.model import COLUMNS, PACK, Ref, follower_ranges
from npuflow.engine.tiling.search import Choice
from npuflow.engine.tiling.units import Unit
from npuflow.ir.space import Box, Interval, Tile, elements

BESIDE = ("bias", "multipliers", "los", "his")   # parameters of the requantisation, not of the array


@dataclass
class Slots:
    """A unit's slots on a core, and what each holds from one run of its part to the next."""

    unit: Unit
    areas: list[Area] = field(default_factory=list)
    holds: list[tuple[Box, ...] | None] = field(default_factory=list)
    turn: int = 0
    boxes: list[tuple[Box, ...]] = field(default_factory=list)       # by tile
    loads: list[tuple[int, int, int]] = field(default_factory=list)  # (issued before this tile, for that one, slot)
    used: list[int] = field(default_factory=list)                    # slot by tile
    bytes: list[int] = field(default_factory=list)                   # by tile; constants are packed
    known: dict[tuple[Interval, ...], tuple[tuple[Box, ...], int]] = field(default_factory=dict)   # by a tile's place

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Those that its operands are indexed by."""
        return tuple(sorted(frozenset().union(*(r.axes for r in self.unit.refs))))

    @cached_property
    def gathers(self) -> bool:
        """Whether the vector unit fills it with a convolution's columns."""
        return self.unit.refs[0].key == COLUMNS

    def plan(self, tiles: Sequence[Tile], finished: Sequence[bool]) -> None:
        """Which slot each tile uses; a slot is loaded again as soon as its last tile is through."""
        axes, known, self.boxes, self.bytes = self.axes, self.known, [], []
        for tile in tiles:
            where = tuple([tile[a] for a in axes])
            if where not in known:
                known[where] = self._found(tile)
            boxes, size = known[where]
            self.boxes.append(boxes)
            self.bytes.append(size)
        self.loads, self.used = [], []
        last = [-1] * len(self.areas)
        for i, boxes in enumerate(self.boxes):
            if self.unit.home in ("output", "inner", "acc") and not self.gathers:
                self.used.append(self.turn % len(self.areas))
                self.turn += finished[i]
                continue
            if boxes in self.holds:
                slot = self.holds.index(boxes)
            else:
                slot, self.turn = self.turn % len(self.areas), self.turn + 1
                self.loads.append((last[slot] + 1, i, slot))
                self.holds[slot] = boxes
            last[slot] = i
            self.used.append(slot)

    def _found(self, tile: Tile) -> tuple[tuple[Box, ...], int]:
        boxes, size = tuple([r.operand.box(tile) for r in self.unit.refs]), 0
        for ref, box in zip(self.unit.refs, boxes, strict=True):
            size = aligned(size, PACK) + ref.bytes(elements(box))
        return boxes, size


Reads = tuple[list[Slots], list[tuple[str, Ref]]]    # slots, and values in buffers, that a job reads


class Part:
    """A part of a group on a core; every run is for a window."""

    def __init__(self, core: Core, member: Member, choice: Choice, slots: Sequence[Slots]) -> None:
        self.core, self.member, self.choice, self.slots = core, member, choice, slots
        layer = member.layer
        self.array = layer.mac is not None
        self.columns = next((s for s in slots if s.gathers), None)
        self.sums = next((s for s in slots if s.unit.home == "acc"), None)
        self.inputs = [s for s in slots if s.unit.home == "input"]
        self.outputs = [s for s in slots if s.unit.home == "output"]
        self.made = [s for s in slots if s.unit.home in ("output", "inner") and not s.gathers]
        self.renewed = [s for s in slots if s.unit.home == "acc" or s in self.made]
        self.moving = self._reads(lambda r: r.member == 0 and r.key == 0)
        beside = self._reads(lambda r: r.member == 0 and r.operand.name in BESIDE)
        others = self._reads(lambda r: r.member == 0 and r.operand.name not in BESIDE and not (r.key == 0 and self.columns))
        first = beside if self.array else self._reads(lambda r: r.member == 0)
        self.fed = others                                            # what the array reads
        self.read = [first, *(self._reads(lambda r, k=k: r.member == k) for k in range(1, len(member.sites)))]  # type: ignore[misc]
        self.known: dict[tuple[int, ...], tuple[int, list[int]]] = {}

    def _reads(self, wanted: Callable[[Ref], bool]) -> Reads:
        slots = [s for s in self.slots if s.unit.home in ("input", "const") and any(map(wanted, s.unit.refs))]
        return slots, [(self.member.value(r), r) for r in self.member.layer.kept if r.home == "source" and wanted(r)]

    def run(self, window: Tile) -> None:
        tiles = list(tiles_of(window, self.choice))
        ends = [(a.name, a.size) for a in self.member.layer.axes if a.kind == "sum"]
        finished = [all(t[a][1] == size for a, size in ends) for t in tiles]
        for slots in self.slots:
            slots.plan(tiles, finished)
        loads, gathers = self._due(len(tiles)), self._to_gather(len(tiles))
        for i, tile in enumerate(tiles):
            for slots, used, slot in loads[i]:
                self._load(slots, used, slots.areas[slot])
            for used in gathers[i]:
                self._gather(tiles[used], used)
            for slots in self.renewed if i == 0 or finished[i - 1] else ():
                slots.areas[slots.used[i]].renew(slots.bytes[i])
            self._compute(tile, i, finished[i])
            for slots in self.outputs if finished[i] else ():
                ref, box = slots.unit.refs[0], slots.boxes[i][0]
                self.core.store_box(self.member.value(ref), ref, box, slots.areas[slots.used[i]], None)

    def _due(self, count: int) -> list[list[tuple[Slots, int, int]]]:
        """What is loaded before each tile: what is needed first in front, constants before values."""
        due: list[list[tuple[int, bool, int, int]]] = [[] for _ in range(count)]
        for n, slots in enumerate(self.slots):
            for issue, used, slot in slots.loads if not slots.gathers else ():
                due[issue].append((used, slots.unit.home != "const", n, slot))
        return [[(self.slots[n], used, slot) for used, _, n, slot in sorted(loads)] for loads in due]

    def _to_gather(self, count: int) -> list[list[int]]:
        """Tiles whose columns are gathered before each tile's turn: one ahead, if slots and input are there."""
        found: list[list[int]] = [[] for _ in range(count)]
        inputs = [load for s in self.inputs for load in s.loads]
        for issue, used, _ in self.columns.loads if self.columns else ():
            ready = max((i for i, u, _ in inputs if u <= used), default=0)
            found[max(issue, ready, used - 1)].append(used)
        return found

    def _load(self, slots: Slots, tile: int, area: Area) -> None:
        ref = slots.unit.refs[0]
        area.renew(slots.bytes[tile])
        if slots.unit.home == "const":
            key = tuple((self.member.nodes[r.member], r.key) for r in slots.unit.refs), slots.boxes[tile]
            self.core.load_block(slots.bytes[tile], area, key)
        else:
            self.core.load_box(self.member.value(ref), ref, slots.boxes[tile][0], area, None)

    def _gather(self, tile: Tile, i: int) -> None:
        assert self.columns is not None
        area = self.columns.areas[self.columns.used[i]]
        area.renew(self.columns.bytes[i])
        filled, copied = gather_cycles(self.member.spaces[0], tile, self.core.stage.machine.compute)
        if filled:
            self.core.compute(self.core.vector, filled, [], [(area, None)])
        if copied:
            self.core.compute(self.core.vector, copied, self._places(self.moving, tile, i), [(area, None)])

    def _compute(self, tile: Tile, i: int, finished: bool) -> None:
        array, vector = self._cycles(tile, finished)
        sums = [(self.sums.areas[self.sums.used[i]], None)] if self.sums is not None else []
        if self.array:
            columns = [(self.columns.areas[self.columns.used[i]], None)] if self.columns is not None else []
            self.core.compute(self.core.tensor, array, [*columns, *self._places(self.fed, tile, i)], sums)
        for k, cycles in enumerate(vector):
            read = self._places(self.read[k], tile, i)
            read += [(s.areas[s.used[i]], None) for s in self.made if s.unit.home == "inner" and s.unit.refs[0].member < k]
            written = self._written(k, tile, i) if finished else []
            self.core.compute(self.core.vector, cycles, [*read, *sums] if k == 0 and self.array else read, written)

    def _cycles(self, tile: Tile, finished: bool) -> tuple[int, list[int]]:
        """Of the array, and of the vector unit for each node; tiles of one kind cost the same."""
        kind = *(b - a for a, b in tile.values()), finished
        if kind not in self.known:
            member, c = self.member, self.core.stage.machine.compute
            nodes = range(len(member.sites) if finished else int(not self.array))
            own = [tile if not k else follower_ranges(member.layer.space, member.spaces[k], tile) for k in nodes]
            vector = [vector_cycles(member.spaces[k], t, finished, c) for k, t in enumerate(own)]
            self.known[kind] = array_cycles(member.layer, extents_of(tile), c), vector
        return self.known[kind]

    def _places(self, reads: Reads, tile: Tile, i: int) -> list[Place]:
        found: list[Place] = [(s.areas[s.used[i]], None) for s in reads[0]]
        found += [(self.core.resident(value).area, ref.operand.box(tile)) for value, ref in reads[1]]
        return found

    def _written(self, k: int, tile: Tile, i: int) -> list[Place]:
        found: list[Place] = [(s.areas[s.used[i]], None) for s in self.made if s.unit.refs[0].member == k]
        for ref in self.member.layer.kept:
            if ref.home == "result" and ref.member == k:
                found.append((self.core.resident(self.member.value(ref)).area, ref.operand.box(tile)))
        return found


def tiles_of(window: Tile, choice: Choice) -> Iterator[dict[str, Interval]]:
    """Every tile of a window, as the choice nests them."""
    for ranges in product(*(choice.cuts(axis, window[axis]) for axis in choice.order)):
        yield dict(zip(choice.order, ranges, strict=True))
