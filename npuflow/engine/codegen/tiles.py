"""One tiled group as commands: loads issued as early as their slots are free, compute from `lower`, stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from npuflow.engine.allocate import Ring, aligned
from npuflow.engine.codegen.commands import CommandList, Slot, Touch
from npuflow.engine.codegen.consts import ConstPool, pack
from npuflow.engine.codegen.data import Data
from npuflow.engine.codegen.dma import box_copy, box_span, dense
from npuflow.engine.tiling.model import Layer, Ref, bundles, follower_ranges
from npuflow.engine.tiling.search import Choice
from npuflow.hw.target import Numerics
from npuflow.ir.op import Buffer, Site, TileView
from npuflow.ir.space import Box, Interval, Space, elements, extent
from npuflow.ir.types import Array

Ranges = Mapping[str, Interval]


@dataclass(frozen=True)
class Bench:
    """Where code is generated into: one core's commands and local memory, the constants, external memory."""

    commands: CommandList
    ring: Ring
    consts: ConstPool
    data: Data
    numerics: Numerics


@dataclass
class Unit:
    """Operands that share a slot and change together, with the slots that hold their tiles."""

    refs: tuple[Ref, ...]
    slots: int
    boxes: list[tuple[Box, ...]] = field(default_factory=list)      # per step
    size: int = 0
    held: list[Slot] = field(default_factory=list)
    loads: list[tuple[int, int, int]] = field(default_factory=list)  # (issue step, first step that uses it, slot)
    slot_at: list[int] = field(default_factory=list)                 # per step

    @property
    def home(self) -> str:
        return self.refs[0].home

    def offsets(self, step: int) -> list[int]:
        """Where each operand's box begins inside the slot."""
        found, at = [], 0
        for ref, box in zip(self.refs, self.boxes[step], strict=True):
            at = aligned(at, 16)
            found.append(at)
            at += elements(box) * ref.itemsize
        return found


def steps_of(layer: Layer, choice: Choice) -> list[dict[str, Interval]]:
    """Every tile in nesting order."""
    sizes = dict(choice.sizes)
    lists = []
    for name in choice.order:
        full, size = layer.space.axis(name).size, sizes[name]
        lists.append([(a, min(a + size, full)) for a in range(0, full, size)])
    return [dict(zip(choice.order, ranges, strict=True)) for ranges in product(*lists)]


def units_of(layer: Layer, choice: Choice) -> list[Unit]:
    """Streams as the tiling leaves them: constants whose split axes coincide are packed into one block."""
    sizes = dict(choice.sizes)
    split = frozenset(a.name for a in layer.axes if sizes[a.name] < a.size)
    slots = {ref: n for stream, n in zip(layer.streams, choice.slots, strict=True) for ref in stream.refs}
    constants = [r for s in layer.streams if s.home == "const" for r in s.refs]
    units = [Unit(s.refs, n) for s, n in zip(layer.streams, choice.slots, strict=True) if s.home != "const"]
    return units + [Unit(s.refs, max(slots[r] for r in s.refs)) for s in bundles(constants, split)]


def schedule(unit: Unit, steps: Sequence[Ranges], finished: Sequence[bool]) -> None:
    """Boxes, slots and issue steps: a tile's load is issued as soon as the slot it takes has been used up."""
    unit.boxes = [tuple(r.operand.box(s) for r in unit.refs) for s in steps]
    unit.size = max(
        aligned(o + elements(b) * r.itemsize, 16)
        for i in range(len(steps))
        for r, b, o in zip(unit.refs, unit.boxes[i], unit.offsets(i), strict=True)
    )
    holds: list[tuple[Box, ...] | None] = [None] * unit.slots
    last = [-1] * unit.slots                       # last step that used the slot
    turn = 0
    for i, boxes in enumerate(unit.boxes):
        if unit.home in ("output", "inner", "acc"):
            unit.slot_at.append(turn % unit.slots)
            if finished[i]:
                turn += 1
            continue
        if boxes in holds:
            slot = holds.index(boxes)
        else:
            slot, turn = turn % unit.slots, turn + 1
            unit.loads.append((last[slot] + 1, i, slot))
            holds[slot] = boxes
        last[slot] = i
        unit.slot_at.append(slot)


class TileEmitter:
    """The Emitter that `lower` sees: commands of one tile, whose pointers fall into the tile's slots."""

    def __init__(self, bench: Bench, slots: Sequence[Slot], node: int, step: int) -> None:
        self.numerics = bench.numerics
        self._commands, self._slots, self._node, self._step = bench.commands, slots, node, step

    def emit(self, opcode: str, **values: object) -> None:
        self._commands.compute(opcode, values, self._slots, self._node, self._step)


def emit_group(
    bench: Bench, sites: Sequence[Site], spaces: Sequence[Space], layer: Layer, choice: Choice, nodes: Sequence[int]
) -> None:
    """All commands of one tiled group; its first member leads, the others follow on finished tiles."""
    steps = steps_of(layer, choice)
    sums = [a.name for a in layer.axes if a.kind == "sum"]
    full = {a.name: a.size for a in layer.axes}
    finished = [all(s[a][1] == full[a] for a in sums) for s in steps]
    units = units_of(layer, choice)
    for unit in units:
        schedule(unit, steps, finished)
    addresses = iter(bench.ring.take([u.size for u in units for _ in range(u.slots)]))
    for unit in units:
        unit.held = [bench.commands.local.open(next(addresses), unit.size) for _ in range(unit.slots)]
    for i, ranges in enumerate(steps):
        for unit, used, slot in _due(units, i):
            _load(bench, sites, unit, used, unit.held[slot], nodes)
        slots = [u.held[u.slot_at[i]] for u in units]
        buffers = _buffers(sites, units, i)
        for member, site in enumerate(sites):
            if member and not finished[i]:
                break
            own = ranges if not member else follower_ranges(layer.space, spaces[member], ranges)
            view = _view(site, member, buffers, own, {a.name: a.size for a in spaces[member].axes})
            site.op.lower(site, view, TileEmitter(bench, slots, nodes[member], i))
        for unit in units:
            if unit.home == "output" and finished[i]:
                _store(bench, sites, unit, i, nodes)


def _due(units: Sequence[Unit], step: int) -> Iterator[tuple[Unit, int, int]]:
    """Loads to issue before a step's compute, those needed first in front; constants before activations."""
    due = [
        (used, unit.home != "const", n, unit, slot)
        for n, unit in enumerate(units)
        for issue, used, slot in unit.loads
        if issue == step
    ]
    for used, _, _, unit, slot in sorted(due, key=lambda d: d[:3]):
        yield unit, used, slot


def _load(bench: Bench, sites: Sequence[Site], unit: Unit, step: int, slot: Slot, nodes: Sequence[int]) -> None:
    boxes, node = unit.boxes[step], nodes[unit.refs[0].member]
    if unit.home == "const":
        arrays = [_array(sites[r.member], r) for r in unit.refs]
        block, _ = pack(arrays, boxes)
        if block:
            values = box_copy("CONST", bench.consts.add(block), (len(block),), ((0, len(block)),), slot.low, 1)
            bench.commands.load(values, slot, node, None, step)
        return
    ref, box = unit.refs[0], boxes[0]
    if not elements(box):
        return
    value = sites[ref.member].inputs[int(ref.key)]
    assert value is not None
    storage, base = bench.data.of(value.id)
    touch = Touch(value.id, box, *box_span(base, ref.operand.shape, box, ref.itemsize))
    values = box_copy("DATA", base, ref.operand.shape, box, slot.low, ref.itemsize)
    bench.commands.load(values, slot, node, (storage, touch), step)


def _store(bench: Bench, sites: Sequence[Site], unit: Unit, step: int, nodes: Sequence[int]) -> None:
    ref, box, slot = unit.refs[0], unit.boxes[step][0], unit.held[unit.slot_at[step]]
    value, node = sites[ref.member].outputs[int(ref.key)], nodes[ref.member]
    storage, base = bench.data.open(value.id)
    touch = Touch(value.id, box, *box_span(base, ref.operand.shape, box, ref.itemsize))
    values = box_copy("DATA", base, ref.operand.shape, box, slot.low, ref.itemsize)
    bench.commands.store(values, slot, node, storage, touch, step)


def _array(site: Site, ref: Ref) -> Array:
    if isinstance(ref.key, str):
        return site.array(ref.key)
    array = site.consts[ref.key]
    assert array is not None
    return array


Buffers = dict[tuple[int, int | str], Buffer]


def _buffers(sites: Sequence[Site], units: Sequence[Unit], step: int) -> tuple[Buffers, dict[str, Buffer], Buffer | None]:
    """What is resident in a step: inputs and parameters by member and key, values made in the group, the accumulator."""
    held: Buffers = {}
    made: dict[str, Buffer] = {}
    acc = None
    for unit in units:
        base = unit.held[unit.slot_at[step]].low
        for ref, box, offset in zip(unit.refs, unit.boxes[step], unit.offsets(step), strict=True):
            buffer = Buffer(base + offset, ref.dtype, box, dense(extent(box), ref.itemsize))
            if ref.home == "acc":
                acc = buffer
            elif ref.home in ("output", "inner"):
                made[sites[ref.member].outputs[int(ref.key)].id] = buffer
            else:
                held[ref.member, ref.key] = buffer
    return held, made, acc


def _view(
    site: Site, member: int, buffers: tuple[Buffers, dict[str, Buffer], Buffer | None], ranges: Ranges, sizes: Mapping[str, int]
) -> TileView:
    held, made, acc = buffers
    inputs = tuple(
        held.get((member, i)) or (made.get(value.id) if value is not None else None) for i, value in enumerate(site.inputs)
    )
    params = {str(key): b for (m, key), b in held.items() if m == member and isinstance(key, str)}
    outputs = tuple(made[o.id] for o in site.outputs)
    return TileView(ranges, sizes, inputs, outputs, params, acc if member == 0 else None)
