"""Runs a part over a window, tile by tile: early loads, array and vector unit, stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from npuflow.base.errors import InternalError
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.target import Compute as Engines
from npuflow.ir.space import Box, Interval, Tile, elements, extent
from npuflow.schedule.allocate import aligned
from npuflow.schedule.choice import TileChoice
from npuflow.schedule.cores import Core, Slot
from npuflow.schedule.cycles import array_cycles, extents_of, gather_cycles, vector_cycles
from npuflow.schedule.geometry import Member
from npuflow.schedule.jobs import (
    ComputeTile,
    Constants,
    ConstantShare,
    GatherColumns,
    Place,
    Run,
    TileRun,
)
from npuflow.schedule.joined import Joins, copies_nothing
from npuflow.schedule.model import COLUMNS, PACK, Ref, follower_ranges
from npuflow.schedule.units import SlotUnit

BESIDE = ("bias", "multipliers", "los", "his")   # parameters of the requantisation, not of the array
Boxes = tuple[Box, ...]


@dataclass(eq=False)
class UnitSlots:
    """A unit's slots on a core, and what each holds from one run of its part to the next."""

    unit: SlotUnit
    slots: list[Slot] = field(default_factory=list)
    holds: list[Boxes | None] = field(default_factory=list)
    turn: int = 0
    boxes: list[Boxes] = field(default_factory=list)                 # by tile
    # (issued before this tile, for that one, slot)
    loads: list[tuple[int, int, int]] = field(default_factory=list)
    used: list[int] = field(default_factory=list)                    # slot by tile
    bytes: list[int] = field(default_factory=list)                   # by tile; constants are packed
    known: dict[tuple[Interval, ...], tuple[Boxes, int]] = field(default_factory=dict)   # by a tile's place

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
                known[where] = self.found(tile)
            boxes, size = known[where]
            self.boxes.append(boxes)
            self.bytes.append(size)
        self.loads, self.used = [], []
        last = [-1] * len(self.slots)
        for i, boxes in enumerate(self.boxes):
            if self.unit.home in ("output", "inner", "acc") and not self.gathers:
                self.used.append(self.turn % len(self.slots))
                self.turn += finished[i]
                continue
            if boxes in self.holds:
                slot = self.holds.index(boxes)
            else:
                slot, self.turn = self.turn % len(self.slots), self.turn + 1
                self.loads.append((last[slot] + 1, i, slot))
                self.holds[slot] = boxes
            last[slot] = i
            self.used.append(slot)

    def spans(self, tile: int) -> list[Interval]:
        """Where each of its operands lies in the slot: constants are packed."""
        found, end = [], 0
        for ref, box in zip(self.unit.refs, self.boxes[tile], strict=True):
            start = aligned(end, PACK)
            end = start + ref.bytes(elements(box))
            found.append((start, end))
        return found

    def found(self, tile: Tile) -> tuple[Boxes, int]:
        """What a slot holds for a tile, and its bytes."""
        boxes, size = tuple([r.operand.box(tile) for r in self.unit.refs]), 0
        for ref, box in zip(self.unit.refs, boxes, strict=True):
            size = aligned(size, PACK) + ref.bytes(elements(box))
        if size > aligned(self.unit.size, PACK):
            raise InternalError(
                f"a tile of {size} bytes in a slot of {self.unit.size}", code="NF-INTERNAL-014"
            )
        return boxes, size


class Reads(NamedTuple):
    """What a job reads: units, kept operands of the layer, and by unit of constants which of its operands."""

    units: list[int]
    kept: list[int]
    refs: Mapping[int, tuple[int, ...]] = MappingProxyType({})


class CorePart:
    """A part of a group on a core; every run is for a window."""

    def __init__(
        self, core: Core, member: Member, choice: TileChoice, units: Sequence[UnitSlots], joins: Joins,
    ) -> None:
        self.core, self.member, self.choice, self.units, self.joins = core, member, choice, units, joins
        layer, homes = member.layer, [u.unit.home for u in units]
        self.array = layer.mac is not None
        numbers = range(len(units))
        self.columns = next((n for n in numbers if units[n].gathers), None)
        self.inputs = [u for u, home in zip(units, homes, strict=True) if home == "input"]
        self.sums = [n for n in numbers if homes[n] == "acc"][:1]
        self.outputs = [n for n in numbers if homes[n] == "output"]
        made = [n for n in numbers if homes[n] in ("output", "inner") and not units[n].gathers]
        self.renewed = [n for n in numbers if homes[n] == "acc" or n in made]
        self.moving = self._reads(lambda r: r.member == 0 and r.key == 0)
        beside = self._reads(lambda r: r.member == 0 and r.operand.name in BESIDE)
        self.fed = self._reads(  # what the array reads
            lambda r: (
                r.member == 0
                and r.operand.name not in BESIDE
                and not (r.key == 0 and self.columns is not None)
            )
        )
        if self.columns is not None:
            self.fed = self.fed._replace(units=[self.columns, *self.fed.units])
        first = beside if self.array else self._reads(lambda r: r.member == 0)
        self.read: list[Reads] = [first]
        self.written: list[Reads] = []
        for k in range(len(member.sites)):
            if k:
                self.read.append(self._reads(lambda r, k=k: r.member == k))  # type: ignore[misc]
            inner = [n for n in made if homes[n] == "inner" and units[n].unit.refs[0].member < k]
            sums = self.sums if k == 0 and self.array else []
            self.read[k] = self.read[k]._replace(units=[*self.read[k].units, *inner, *sums])
            results = [n for n, r in enumerate(layer.kept) if r.home == "result" and r.member == k]
            self.written.append(Reads([n for n in made if units[n].unit.refs[0].member == k], results))
        self.known: dict[tuple[int, ...], tuple[int, list[int]]] = {}

    def _reads(self, wanted: Callable[[Ref], bool]) -> Reads:
        units = [
            n
            for n, u in enumerate(self.units)
            if u.unit.home in ("input", "const") and any(map(wanted, u.unit.refs))
        ]
        kept = [n for n, r in enumerate(self.member.layer.kept) if r.home == "source" and wanted(r)]
        if not self.core.machine.memory.bank_ports:       # which bytes are read matters to banks alone
            return Reads(units, kept)
        refs = {
            n: tuple(i for i, r in enumerate(self.units[n].unit.refs) if wanted(r))
            for n in units if self.units[n].unit.home == "const"
        }
        return Reads(units, kept, refs)

    def run(self, window: Tile) -> None:
        if copies_nothing(self.member.spaces[0]):
            return
        tiles = list(tiles_of(window, self.choice))
        ends = [(a.name, a.size) for a in self.member.layer.axes if a.kind == "sum"]
        finished = [all(t[a][1] == size for a, size in ends) for t in tiles]
        for unit in self.units:
            unit.plan(tiles, finished)
        run = Run(self.member, [u.unit for u in self.units], [u.boxes for u in self.units], self.joins)
        residents = [self.core.resident(self.member.value(r)) for r in self.member.layer.kept]
        loads, gathers = self._due(len(tiles)), self._to_gather(len(tiles))

        def at(i: int) -> TileRun:
            now = [u.slots[u.used[i]].now for u in self.units]
            return TileRun(run, i, tiles[i], finished[i], now, [r.now for r in residents])

        for i in range(len(tiles)):
            for unit, used, slot in loads[i]:
                self._load(unit, used, unit.slots[slot])
            for used in gathers[i]:
                assert self.columns is not None
                unit = self.units[self.columns]
                unit.slots[unit.used[used]].renew(unit.bytes[used])
                self._gather(at(used))
            for n in self.renewed if i == 0 or finished[i - 1] else ():
                unit = self.units[n]
                unit.slots[unit.used[i]].renew(unit.bytes[i])
            tile = at(i)
            self._compute(tile)
            for n in self.outputs if finished[i] else ():
                ref, box = self.units[n].unit.refs[0], self.units[n].boxes[i][0]
                node = self.member.nodes[ref.member]
                self.core.store_box(self.member.value(ref), ref, box, tile.allocations[n], None, node, i)

    def _due(self, count: int) -> list[list[tuple[UnitSlots, int, int]]]:
        """What is loaded before each tile: what is needed first in front, constants before values."""
        due: list[list[tuple[int, bool, int, int]]] = [[] for _ in range(count)]
        for n, unit in enumerate(self.units):
            for issue, used, slot in unit.loads if not unit.gathers else ():
                due[issue].append((used, unit.unit.home != "const", n, slot))
        return [[(self.units[n], used, slot) for used, _, n, slot in sorted(loads)] for loads in due]

    def _to_gather(self, count: int) -> list[list[int]]:
        """Tiles whose columns are gathered before each tile's turn: one ahead, if
        slots and input are there."""
        found: list[list[int]] = [[] for _ in range(count)]
        inputs = [load for u in self.inputs for load in u.loads]
        for issue, used, _ in self.units[self.columns].loads if self.columns is not None else ():
            ready = max((i for i, u, _ in inputs if u <= used), default=0)
            found[max(issue, ready, used - 1)].append(used)
        return found

    def _load(self, unit: UnitSlots, tile: int, slot: Slot) -> None:
        ref, member = unit.unit.refs[0], self.member
        if unit.unit.home == "const":
            slot.renew(unit.bytes[tile], ((0, unit.bytes[tile]),), 1)
            boxes, refs = unit.boxes[tile], unit.unit.refs
            key = tuple((member.nodes[r.member], r.key) for r in refs), boxes
            what, size, node = Constants(member, refs, boxes), unit.bytes[tile], member.nodes[ref.member]
            parts = self.core.cuts(slot, size) if self.core.cutting else []
            if len(parts) < 2:
                self.core.load_block(size, slot.now, what, node, tile, key)
            for low, high in parts if len(parts) > 1 else ():
                share, place = ConstantShare((what,), (size,), low), (slot.now, ((low, high),))
                self.core.load_share(high - low, [place], share, node, tile)
        else:
            slot.renew(unit.bytes[tile])
            self.core.load_box(
                member.value(ref), ref, unit.boxes[tile][0], slot.now, None, member.nodes[ref.member], tile
            )

    def _gather(self, tile: TileRun) -> None:
        assert self.columns is not None
        core, node = self.core, self.member.nodes[0]
        written: list[Place] = [(tile.allocations[self.columns], None)]
        filled, copied = gather_cycles(self.member.spaces[0], tile.ranges, core.machine.compute)
        if filled:
            core.compute(
                core.queues.vector, filled, [], written, GatherColumns(tile, "FILL"), node, tile.index
            )
        if copied:
            read = self._places(self.moving, tile)
            core.compute(
                core.queues.vector, copied, read, written, GatherColumns(tile, "COPY"), node, tile.index
            )

    def _compute(self, tile: TileRun) -> None:
        core, nodes = self.core, self.member.nodes
        array, vector = self._cycles(tile.ranges, tile.finished)
        if self.array:
            read, sums = self._places(self.fed, tile), self._places(Reads(self.sums, []), tile)
            core.compute(core.queues.tensor, array, read, sums, ComputeTile(tile, 0), nodes[0], tile.index)
        for k, cycles in enumerate(vector):
            written = self._places(self.written[k], tile) if tile.finished else []
            read, what = self._places(self.read[k], tile), ComputeTile(tile, k)
            if self.member.spaces[k].fetches:
                core.fetch(*self._rows(tile), read, written, what, nodes[k], tile.index)
                continue
            core.compute(
                core.queues.vector, cycles, read, written, what, nodes[k], tile.index
            )

    def _rows(self, tile: TileRun) -> tuple[int, int]:
        """How many rows of a table a tile of the first member loads, and the bytes of each."""
        made, value = self.member.spaces[0].outputs[0], self.member.sites[0].outputs[0]
        *rows, width = extent(made.box(tile.ranges))
        return prod(rows), width * ELEMENTS[value.element].bytes

    def _cycles(self, tile: Tile, finished: bool) -> tuple[int, list[int]]:
        """Of the array, and of the vector unit for each node; tiles of one kind cost the same."""
        kind = *(b - a for a, b in tile.values()), finished
        if kind not in self.known:
            self.known[kind] = tile_cycles(self.member, tile, finished, self.core.machine.compute)
        return self.known[kind]

    def _places(self, reads: Reads, tile: TileRun) -> list[Place]:
        found: list[Place] = [(tile.allocations[n], None) for n in reads.units if n not in reads.refs]
        for n, refs in reads.refs.items():
            spans = self.units[n].spans(tile.index)
            found += [(tile.allocations[n], (spans[i],)) for i in refs]
        if reads.kept:
            kept = self.member.layer.kept
            found += [
                (tile.residents[n], tile.run.place(kept[n], kept[n].operand.box(tile.ranges)))
                for n in reads.kept
            ]
        return found


def tiles_of(window: Tile, choice: TileChoice) -> Iterator[dict[str, Interval]]:
    """Every tile of a window, as the choice nests them."""
    for ranges in product(*(choice.cuts(axis, window[axis]) for axis in choice.order)):
        yield dict(zip(choice.order, ranges, strict=True))


def tile_cycles(member: Member, tile: Tile, finished: bool, c: Engines) -> tuple[int, list[int]]:
    """Of the array, and of the vector unit for each node that has something to do."""
    nodes = range(len(member.sites) if finished else int(member.layer.mac is None))
    own = [tile if not k else follower_ranges(member.layer.space, member.spaces[k], tile) for k in nodes]
    vector = [vector_cycles(member.spaces[k], t, finished, c) for k, t in enumerate(own)]
    return array_cycles(member.layer, extents_of(tile), c), vector
