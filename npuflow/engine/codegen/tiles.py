"""One part of a group as commands: loads issued as early as their slots are free, compute from `lower`, stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from npuflow.base.errors import InternalError
from npuflow.engine.allocate import aligned
from npuflow.engine.codegen.columns import gather, on_columns
from npuflow.engine.codegen.commands import CommandList, Place, Touch
from npuflow.engine.codegen.consts import ConstPool, pack
from npuflow.engine.codegen.data import Data
from npuflow.engine.codegen.dma import box_copy, box_span, dense
from npuflow.engine.codegen.slots import Slot
from npuflow.engine.program.taps import Tap
from npuflow.engine.tiling.geometry import Member
from npuflow.engine.tiling.model import COLUMNS, PACK, Ref, follower_ranges
from npuflow.engine.tiling.search import Choice
from npuflow.engine.tiling.units import Unit
from npuflow.hw.target import Numerics
from npuflow.ir.op import Buffer, Site, TileView
from npuflow.ir.space import Box, Interval, Tile, elements, extent
from npuflow.ir.types import Array

Boxes = tuple[Box, ...]


@dataclass(frozen=True)
class Bench:
    """Where code is generated into: one core's commands and local memory, the constants, external memory."""

    commands: CommandList
    consts: ConstPool
    data: Data
    numerics: Numerics
    taps: list[Tap] = field(default_factory=list)

    def tap(self, value: str, buffer: Buffer, since: int) -> None:
        """Note where a box lies after the last command since number `since` that wrote to it. All that write tensors
        run in one queue, in order: after the last of them the box is complete."""
        if not elements(buffer.box):
            return
        size = [b - a for a, b in buffer.box]
        end = buffer.address + sum((n - 1) * s for n, s in zip(size, buffer.strides, strict=True)) + 1
        for index in range(len(self.commands.commands) - 1, since - 1, -1):
            at = self.commands.commands[index].values.get("y")
            if isinstance(at, int) and buffer.address <= at < end:
                self.taps.append(Tap(index, value, buffer.address, buffer.box, buffer.strides))
                return


@dataclass
class Resident:
    """A value in local memory: the slot, and the box that it is laid out for."""

    slot: Slot
    box: Box

    def view(self, box: Box, ref: Ref) -> Buffer:
        strides = dense(extent(self.box), ref.itemsize)
        at = sum((a - lo) * s for (a, _), (lo, _), s in zip(box, self.box, strides, strict=True)) if elements(box) else 0
        return Buffer(self.slot.low + at, ref.dtype, box, strides)


@dataclass
class Holder:
    """A unit's slots, and what each holds from one run of its part to the next."""

    unit: Unit
    open: Callable[[], list[Slot]]
    slots: list[Slot] = field(default_factory=list)
    holds: list[Boxes | None] = field(default_factory=list)
    turn: int = 0
    boxes: list[Boxes] = field(default_factory=list)                 # of this run, per step
    loads: list[tuple[int, int, int]] = field(default_factory=list)  # (issue step, first step that uses it, slot)
    slot_at: list[int] = field(default_factory=list)                 # per step

    @property
    def gathers(self) -> bool:
        return self.unit.refs[0].key == COLUMNS

    def schedule(self, steps: Sequence[Tile], finished: Sequence[bool]) -> None:
        """Boxes, slots and issue steps: a tile's load is issued as soon as the slot it takes has been used up."""
        if not self.slots:
            self.slots = self.open()
            self.holds = [None] * len(self.slots)
        self.boxes = [tuple(r.operand.box(s) for r in self.unit.refs) for s in steps]
        self.loads, self.slot_at = [], []
        last = [-1] * len(self.slots)                   # last step that used the slot
        for i, boxes in enumerate(self.boxes):
            if self.offsets(boxes)[-1] > aligned(self.unit.size, PACK):
                raise InternalError(
                    f"a tile of {self.offsets(boxes)[-1]} bytes in a slot of {self.unit.size}",
                    code="NF-INTERNAL-014",
                )
            if self.unit.home in ("output", "inner", "acc") and not self.gathers:
                self.slot_at.append(self.turn % len(self.slots))
                self.turn += int(finished[i])
                continue
            if boxes in self.holds:
                slot = self.holds.index(boxes)
            else:
                slot, self.turn = self.turn % len(self.slots), self.turn + 1
                self.loads.append((last[slot] + 1, i, slot))
                self.holds[slot] = boxes
            last[slot] = i
            self.slot_at.append(slot)

    def offsets(self, boxes: Boxes) -> list[int]:
        """Where each operand's box begins inside the slot, and where the last one ends."""
        found, at = [], 0
        for ref, box in zip(self.unit.refs, boxes, strict=True):
            found.append(at)
            at = aligned(at + ref.bytes(elements(box)), PACK)
        return [*found, at]

    def forget(self) -> None:
        """The slots are another's until the next run."""
        self.slots = []


def steps_of(window: Tile, choice: Choice) -> list[dict[str, Interval]]:
    """Every tile of a window in nesting order."""
    lists = [choice.cuts(name, window[name]) for name in choice.order]
    return [dict(zip(choice.order, ranges, strict=True)) for ranges in product(*lists)]


class TileEmitter:
    """The Emitter that `lower` sees: commands of one tile, whose pointers fall into the tile's places."""

    def __init__(
        self, bench: Bench, places: Sequence[Place], node: int, step: int, columns: Buffer | None = None
    ) -> None:
        self.numerics = bench.numerics
        self._commands, self._places, self._node, self._step, self._columns = bench.commands, places, node, step, columns

    def emit(self, opcode: str, **values: object) -> None:
        if opcode == "CONV" and self._columns is not None:
            values = on_columns(values, self._columns)
        self._commands.compute(opcode, values, self._places, self._node, self._step)


class Overheard:
    """An Emitter that only remembers what a tile's CONV would be."""

    def __init__(self, numerics: Numerics) -> None:
        self.numerics = numerics
        self.conv: dict[str, object] = {}

    def emit(self, opcode: str, **values: object) -> None:
        if opcode == "CONV":
            self.conv = values


def emit_part(
    bench: Bench, member: Member, choice: Choice, window: Tile, holders: Sequence[Holder], residents: Mapping[str, Resident]
) -> None:
    """All commands of one run of a part; its first node leads, the others follow on finished tiles."""
    steps, layer, sites = steps_of(window, choice), member.layer, member.sites
    sums = [a.name for a in layer.axes if a.kind == "sum"]
    full = {a.name: a.size for a in layer.axes}
    finished = [all(s[a][1] == full[a] for a in sums) for s in steps]
    started = [True, *finished[:-1]]
    for holder in holders:
        holder.schedule(steps, finished)
    stored = {member.value(h.unit.refs[0]) for h in holders if h.unit.home == "output"}
    for i, ranges in enumerate(steps):
        for holder, used, slot in _due(holders, i):
            _load(bench, member, holder, used, holder.slots[slot])
        for used in _to_gather(holders, i):
            _gather(bench, member, holders, residents, steps, used)
        buffers, places = _buffers(member, holders, residents, ranges, i, started[i])
        for k, site in enumerate(sites):
            if k and not finished[i]:
                break
            own = ranges if not k else follower_ranges(layer.space, member.spaces[k], ranges)
            view = _view(site, k, buffers, own, {a.name: a.size for a in member.spaces[k].axes})
            since = len(bench.commands.commands)
            site.op.lower(site, view, TileEmitter(bench, places, member.nodes[k], i, buffers.columns if not k else None))
            for value, buffer in zip(site.outputs, view.outputs, strict=True) if finished[i] else ():
                if value.id not in stored:
                    bench.tap(value.id, buffer, since)
        for holder in holders:
            if holder.unit.home == "output" and finished[i]:
                done = holder.slots[holder.slot_at[i]]
                ref, box = holder.unit.refs[0], holder.boxes[i][0]
                store(bench, member, ref, box, box, (done, None), done.low, i)


def _due(holders: Sequence[Holder], step: int) -> Iterator[tuple[Holder, int, int]]:
    """Loads to issue before a step's compute, those needed first in front; constants before activations."""
    due = [
        (used, holder.unit.home != "const", n, holder, slot)
        for n, holder in enumerate(holders)
        for issue, used, slot in holder.loads
        if issue == step and not holder.gathers
    ]
    for used, _, _, holder, slot in sorted(due, key=lambda d: d[:3]):
        yield holder, used, slot


def _to_gather(holders: Sequence[Holder], step: int) -> Iterator[int]:
    """Steps whose columns are gathered now: one ahead, so that the array works meanwhile, where slots and input allow it."""
    for holder in holders:
        if not holder.gathers:
            continue
        for issue, used, _ in holder.loads:
            ready = max([i for h in holders if h.unit.home == "input" for i, u, _ in h.loads if u <= used], default=0)
            if max(issue, ready, used - 1) == step:
                yield used


def _gather(
    bench: Bench, member: Member, holders: Sequence[Holder], residents: Mapping[str, Resident], steps: Sequence[Tile], used: int
) -> None:
    buffers, places = _buffers(member, holders, residents, steps[used], used, False)
    assert buffers.columns is not None
    overheard = Overheard(bench.numerics)
    site = member.sites[0]
    site.op.lower(site, _view(site, 0, buffers, steps[used], {a.name: a.size for a in member.spaces[0].axes}), overheard)
    holder = next(h for h in holders if h.gathers)
    holder.slots[holder.slot_at[used]].renew()
    for opcode, fields in gather(overheard.conv, buffers.columns):
        bench.commands.compute(opcode, fields, places, member.nodes[0], used)


def _load(bench: Bench, member: Member, holder: Holder, step: int, slot: Slot) -> None:
    boxes, ref = holder.boxes[step], holder.unit.refs[0]
    slot.renew()
    if holder.unit.home == "const":
        block, _ = pack([(_array(member.sites[r.member], r), r.dtype) for r in holder.unit.refs], boxes)
        if block:
            values = box_copy("CONST", bench.consts.add(block), (len(block),), ((0, len(block)),), slot.low, 1)
            what = tuple((member.nodes[r.member], r.key) for r in holder.unit.refs), boxes
            bench.commands.load(values, (slot, None), member.nodes[ref.member], None, step, what)
        return
    load(bench, member.value(ref), ref, boxes[0], boxes[0], (slot, None), slot.low, member.nodes[ref.member], step)


def load(bench: Bench, value: str, ref: Ref, box: Box, layout: Box, place: Place, base: int, node: int, step: int) -> None:
    """A box of a value from DATA into a buffer laid out for another box, or the same."""
    if not elements(box):
        return
    storage, address = bench.data.of(value)
    touch = Touch(bench.data.seen_as(value), box, *box_span(address, ref.operand.shape, box, ref.itemsize))
    values = box_copy("DATA", address, ref.operand.shape, box, base, ref.itemsize, layout)
    bench.commands.load(values, place, node, (storage, touch), step, (value, box))


def store(bench: Bench, member: Member, ref: Ref, box: Box, layout: Box, place: Place, base: int, step: int) -> None:
    """A box of a value to DATA, out of a buffer laid out for another box, or the same."""
    storage, address = bench.data.open(member.value(ref))
    touch = Touch(bench.data.seen_as(member.value(ref)), box, *box_span(address, ref.operand.shape, box, ref.itemsize))
    values = box_copy("DATA", address, ref.operand.shape, box, base, ref.itemsize, layout)
    bench.commands.store(values, place, member.nodes[ref.member], storage, touch, step)


def _array(site: Site, ref: Ref) -> Array:
    if isinstance(ref.key, str):
        return site.array(ref.key)
    array = site.consts[ref.key]
    assert array is not None
    return array


@dataclass
class _Buffers:
    """What is there in a step: inputs and parameters by member and key, values made in the part, the accumulator."""

    held: dict[tuple[int, int | str], Buffer] = field(default_factory=dict)
    made: dict[str, Buffer] = field(default_factory=dict)
    acc: Buffer | None = None
    columns: Buffer | None = None


def _buffers(
    member: Member, holders: Sequence[Holder], residents: Mapping[str, Resident], ranges: Tile, step: int, fresh: bool
) -> tuple[_Buffers, list[Place]]:
    found = _Buffers()
    places: list[Place] = []
    for holder in holders:
        slot, boxes = holder.slots[holder.slot_at[step]], holder.boxes[step]
        if fresh and holder.unit.home in ("output", "inner", "acc") and not holder.gathers:
            slot.renew()
        places.append((slot, None))
        for ref, box, offset in zip(holder.unit.refs, boxes, holder.offsets(boxes), strict=False):
            buffer = Buffer(slot.low + offset, ref.dtype, box, dense(extent(box), ref.step))
            if ref.home == "acc":
                found.acc = buffer
            elif ref.key == COLUMNS:
                found.columns = buffer
            elif ref.home in ("output", "inner"):
                found.made[member.value(ref)] = buffer
            else:
                found.held[ref.member, ref.key] = buffer
    for ref in member.layer.kept:
        box, resident = ref.operand.box(ranges), residents[member.value(ref)]
        buffer = resident.view(box, ref)
        places.append((resident.slot, box))
        if ref.home == "result":
            found.made[member.value(ref)] = buffer
        else:
            found.held[ref.member, ref.key] = buffer
    return found, places


def _view(site: Site, k: int, buffers: _Buffers, ranges: Tile, sizes: Mapping[str, int]) -> TileView:
    inputs = tuple(
        buffers.held.get((k, i)) or (buffers.made.get(value.id) if value is not None else None)
        for i, value in enumerate(site.inputs)
    )
    params = {str(key): b for (m, key), b in buffers.held.items() if m == k and isinstance(key, str)}
    outputs = tuple(buffers.made[o.id] for o in site.outputs)
    return TileView(ranges, sizes, inputs, outputs, params, buffers.acc if k == 0 else None)
