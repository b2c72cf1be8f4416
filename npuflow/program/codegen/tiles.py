"""Jobs of the array and of the vector unit as commands: `lower` of the operators,
columns, rows that move, constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from npuflow.hw.target import Numerics
from npuflow.ir import forms
from npuflow.ir.codes import encode
from npuflow.ir.lowering import Buffer, TileView
from npuflow.ir.space import Box, elements, extent
from npuflow.program.codegen.columns import ON_COLUMNS, gather, on_columns
from npuflow.program.codegen.core import CoreProgram
from npuflow.program.codegen.dma import dense
from npuflow.schedule.allocate import aligned
from npuflow.schedule.jobs import (
    Allocation,
    ComputeTile,
    CopyRows,
    FillRun,
    GatherColumns,
    Job,
    Place,
    TileRun,
)
from npuflow.schedule.model import COLUMNS, PACK, Ref, follower_ranges
from npuflow.schedule.movers import item_of


class TileEmitter:
    """The Emitter that `lower` sees: commands of one tile, whose pointers fall into the tile's places."""

    def __init__(
        self, core: CoreProgram, job: Job, places: Sequence[Place], columns: Buffer | None = None
    ) -> None:
        self.numerics = core.numerics
        self._core, self._job, self._places, self._columns = core, job, places, columns

    def emit(self, opcode: str, **values: object) -> None:
        if opcode in ON_COLUMNS and self._columns is not None:
            values = on_columns(values, self._columns)
        self._core.commands.compute(opcode, values, self._places, self._job.node, self._job.tile)

    def constant(self, index: int) -> int:
        assert isinstance(self._job.what, ComputeTile)
        site = self._job.what.tile.run.member.sites[self._job.what.member]
        value, array = site.inputs[index], site.consts[index]
        assert value is not None and value.const is not None and array is not None
        return self._core.consts.whole(value.const, array)


class _Overheard:
    """An Emitter that only remembers what a tile's CONV would be."""

    def __init__(self, numerics: Numerics) -> None:
        self.numerics = numerics
        self.conv: dict[str, object] = {}

    def emit(self, opcode: str, **values: object) -> None:
        if opcode in ON_COLUMNS:
            self.conv = values

    def constant(self, index: int) -> int:
        raise NotImplementedError("a convolution loads no rows by indices")


@dataclass
class _Buffers:
    """What is there for a tile: inputs and parameters by member and key, values made
    in the part, the accumulator."""

    held: dict[tuple[int, int | str], Buffer] = field(default_factory=dict)
    made: dict[str, Buffer] = field(default_factory=dict)
    acc: Buffer | None = None
    columns: Buffer | None = None
    places: list[Place] = field(default_factory=list)


def compute(core: CoreProgram, job: Job) -> None:
    """All that a node does for a tile: what it does on the vector unit behind the array
    comes with its job of the array."""
    tile, k = cast(ComputeTile, job.what)
    member = tile.run.member
    if k == 0 and member.layer.mac is not None and job.queue != core.commands.tensor:
        return
    buffers, site, since = _buffers(tile), member.sites[k], len(core.commands.commands)
    view = _view(tile, k, buffers)
    forms.lower(site, view, TileEmitter(core, job, buffers.places, buffers.columns if not k else None))
    if tile.finished:
        stored = {member.value(u.refs[0]) for u in tile.run.units if u.home == "output"}
        for value, buffer in zip(site.outputs, view.outputs, strict=True):
            if value.id not in stored:
                core.tap(value.id, buffer, since)


def gathered(core: CoreProgram, job: Job) -> None:
    """The columns of a tile, or what lies in the padding around them."""
    tile, wanted = cast(GatherColumns, job.what)
    buffers, overheard, site = _buffers(tile), _Overheard(core.numerics), tile.run.member.sites[0]
    assert buffers.columns is not None
    forms.lower(site, _view(tile, 0, buffers), overheard)
    for opcode, fields in gather(overheard.conv, buffers.columns):
        if opcode == wanted:
            core.commands.compute(opcode, fields, buffers.places, job.node, job.tile)


def rows(core: CoreProgram, job: Job) -> None:
    """Rows that the next stripe needs again move from the old slot to the new one."""
    value, ref, box, old, new = cast(CopyRows, job.what)
    a, b, pad = _within(old, box, ref), _within(new, box, ref), 6 - len(box)
    fields: dict[str, object] = {
        "x": a.address, "y": b.address, "element": ref.itemsize, "dims": (1,) * pad + extent(box),
        "x_strides": (0,) * pad + a.strides, "y_strides": (0,) * pad + b.strides,
    }
    since = len(core.commands.commands)
    core.commands.compute("COPY", fields, [(old, box), (new, box)], job.node, job.tile)
    if core.makes(value):
        core.tap(value, b, since)


def fill(core: CoreProgram, job: Job) -> None:
    """One run of a constant, in local memory."""
    site, move, most = cast(FillRun, job.what)
    value, (place,) = site.outputs[move.output], job.writes
    quant = value.quant
    assert quant is not None
    code = int(encode(move.value, quant))
    strides, dims = (0, 0, 0, item_of(site, move)), (1, 1, 1, most)
    fields: dict[str, object] = {
        "y": place[0].low,
        "y_type": value.dtype,
        "y_strides": strides,
        "dims": dims,
        "value": code,
    }
    TileEmitter(core, job, [place]).emit("FILL", **fields)


COMPUTE: Mapping[type, Callable[[CoreProgram, Job], None]] = {
    ComputeTile: compute,
    GatherColumns: gathered,
    CopyRows: rows,
    FillRun: fill,
}


def _within(allocation: Allocation, box: Box, ref: Ref) -> Buffer:
    """A box of what lies in an allocation."""
    strides = dense(extent(allocation.laid), ref.itemsize)
    at = 0
    if elements(box):
        at = sum((a - lo) * s for (a, _), (lo, _), s in zip(box, allocation.laid, strides, strict=True))
    return Buffer(allocation.low + at, ref.dtype, box, strides)


def _buffers(tile: TileRun) -> _Buffers:
    found, member = _Buffers(), tile.run.member
    for unit, boxes, allocation in zip(tile.run.units, tile.run.boxes, tile.allocations, strict=True):
        found.places.append((allocation, None))
        at = allocation.low
        for ref, box in zip(unit.refs, boxes[tile.index], strict=True):
            buffer = Buffer(at, ref.dtype, box, dense(extent(box), ref.step))
            at = aligned(at - allocation.low + ref.bytes(elements(box)), PACK) + allocation.low
            if ref.home == "acc":
                found.acc = buffer
            elif ref.key == COLUMNS:
                found.columns = buffer
            elif ref.home in ("output", "inner"):
                found.made[member.value(ref)] = buffer
            else:
                found.held[ref.member, ref.key] = buffer
    for ref, allocation in zip(member.layer.kept, tile.residents, strict=True):
        box = ref.operand.box(tile.ranges)
        found.places.append((allocation, box))
        buffer = _within(allocation, box, ref)
        if ref.home == "result":
            found.made[member.value(ref)] = buffer
        else:
            found.held[ref.member, ref.key] = buffer
    return found


def _view(tile: TileRun, k: int, buffers: _Buffers) -> TileView:
    member, site = tile.run.member, tile.run.member.sites[k]
    ranges = tile.ranges if not k else follower_ranges(member.layer.space, member.spaces[k], tile.ranges)
    inputs = tuple(
        buffers.held.get((k, i)) or (buffers.made.get(value.id) if value is not None else None)
        for i, value in enumerate(site.inputs)
    )
    params: dict[str, Any] = {
        str(key): b for (m, key), b in buffers.held.items() if m == k and isinstance(key, str)
    }
    outputs = tuple(buffers.made[o.id] for o in site.outputs)
    sizes = {a.name: a.size for a in member.spaces[k].axes}
    return TileView(ranges, sizes, inputs, outputs, params, buffers.acc if k == 0 else None)
