"""Jobs of the array and of the vector unit as commands: `lower` of the operators,
columns, rows that move, constants.

The columns of a convolution's tile are every tap of its window as a channel, gathered from the input's box by
the vector unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import prod
from typing import Any, cast

from npuflow.hw.isa import opcodes
from npuflow.hw.target import Numerics
from npuflow.ir import forms
from npuflow.ir.codes import encode
from npuflow.ir.lowering import Buffer, TileView
from npuflow.ir.op import OpContext
from npuflow.ir.space import Box, Interval, elements, extent
from npuflow.program.codegen.core import Behind, CoreProgram
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
from npuflow.schedule.joined import shown_in
from npuflow.schedule.model import COLUMNS, PACK, Ref, follower_ranges
from npuflow.schedule.movers import item_of

Fields = dict[str, object]
ON_COLUMNS = ("CONV", "FCONV")            # commands whose input may be columns
Run = tuple[int, int, int, int]           # first tap, taps, and the outputs [a, b) that all of them reach
ONE = {"kernel": (1, 1), "stride": (1, 1), "dilation": (1, 1), "origin": (0, 0), "insert": (1, 1)}


def gather(conv: Mapping[str, Any], columns: Buffer) -> Iterator[tuple[str, Fields]]:
    """FILL of what lies in the padding, and COPY of the rest, in runs of taps that reach the same outputs."""
    item, (batch, channels) = columns.strides[-1], conv["x_dims"][:2]
    high, wide = conv["out_height"], conv["out_width"]
    tall, broad = conv["kernel"]
    plane = item * high * wide                             # bytes of one channel and tap
    near = channels * tall * broad * plane, tall * broad * plane, broad * plane, plane, item * wide, item
    rows, cols = _runs(conv, 0, high), _runs(conv, 1, wide)
    for (a, b), (c, d) in _around(high, wide, _common(rows), _common(cols)):
        yield (
            "FILL",
            {
                "y": columns.address + a * near[4] + c * near[5],
                "y_type": conv["x_type"] if "x_zero" in conv else f"int{8 * item}",
                "value": conv.get("x_zero", 0),                # the bits of +0
                "y_strides": (near[0], near[3], near[4], near[5]),
                "dims": (batch, channels * tall * broad, b - a, d - c),
            },
        )
    (n, ch, h, w), stride, dilation, origin = (conv[f] for f in ("x_strides", "stride", "dilation", "origin"))
    for i, down, a, b in rows:
        for j, along, c, d in cols:
            if a >= b or c >= d:
                continue
            row, col = (
                a * stride[0] + i * dilation[0] + origin[0],
                c * stride[1] + j * dilation[1] + origin[1],
            )
            yield (
                "COPY",
                {
                    "x": conv["x"] + row * h + col * w,
                    "y": columns.address + i * near[2] + j * near[3] + a * near[4] + c * near[5],
                    "element": item,
                    "dims": (batch, channels, down, along, b - a, d - c),
                    "x_strides": (n, ch, dilation[0] * h, dilation[1] * w, stride[0] * h, stride[1] * w),
                    "y_strides": near,
                },
            )


def on_columns(conv: Mapping[str, object], columns: Buffer) -> Fields:
    """The command over columns: a kernel of one point, channels and taps as channels; the weights lie as
    they did. Sums of floats keep their order, in which `taps` channels are one."""
    taps = {"taps": prod(cast(tuple[int, ...], conv["kernel"]))} if "taps" in conv else {}
    return {**conv, **columns.image("x"), **ONE, **taps}


def _runs(conv: Mapping[str, Any], d: int, size: int) -> list[Run]:
    """Consecutive taps of a dimension that reach the same outputs inside the input's box."""
    taps, stride, dilation, origin = (int(conv[n][d]) for n in ("kernel", "stride", "dilation", "origin"))
    extent = int(conv["x_dims"][2 + d])

    def reach(tap: int) -> Interval:
        low = tap * dilation + origin
        first = min(size, max(0, -(low // stride)))
        return first, max(first, min(size, (extent - 1 - low) // stride + 1))

    found = []
    for (a, b), members in groupby(range(taps), reach):
        run = list(members)
        found.append((run[0], len(run), a, b))
    return found


def _common(runs: list[Run]) -> Interval:
    return max(r[2] for r in runs), min(r[3] for r in runs)


def _around(high: int, wide: int, rows: Interval, cols: Interval) -> Iterator[tuple[Interval, Interval]]:
    """Rectangles of the outputs outside the part that every tap reaches."""
    (a, b), (c, d) = rows, cols
    if a >= b or c >= d:
        yield (0, high), (0, wide)
        return
    for down, along in (((0, a), (0, wide)), ((b, high), (0, wide)), ((a, b), (0, c)), ((a, b), (d, wide))):
        if down[0] < down[1] and along[0] < along[1]:
            yield down, along


class TileEmitter:
    """The Emitter that `lower` sees: commands of one tile, whose pointers fall into the tile's places.
    `behind`: takes what a tile does on the vector unit behind the array, which has a job of its own."""

    def __init__(
        self, core: CoreProgram, job: Job, places: Sequence[Place], columns: Buffer | None = None,
        behind: list[tuple[str, Fields]] | None = None,
    ) -> None:
        self.numerics = core.numerics
        self._core, self._job, self._places, self._columns = core, job, places, columns
        self._behind = behind

    def emit(self, opcode: str, **values: object) -> None:
        if opcode in ON_COLUMNS and self._columns is not None:
            values = on_columns(values, self._columns)
        if self._behind is not None and opcodes()[opcode].queue != "TENSOR":
            self._behind.append((opcode, values))
            return
        what = self._job.what
        exact = isinstance(what, ComputeTile) and bool(what.tile.run.joins)
        self._core.commands.compute(opcode, values, self._places, self._job.node, self._job.tile, exact)

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
    """What a node does for a tile on one engine. The job of the array also finds what the vector unit does
    behind it, and leaves that for the job of the vector unit."""
    tile, k = cast(ComputeTile, job.what)
    member, since = tile.run.member, len(core.commands.commands)
    site = member.sites[k]
    if k == 0 and member.layer.mac is not None and job.queue != core.commands.tensor:
        behind = core.behind.pop(tile)
        emitter = TileEmitter(core, job, behind.places)
        for opcode, values in behind.commands:
            emitter.emit(opcode, **values)
        _tap(core, tile, site, behind.outputs, since)
        return
    buffers = _buffers(tile)
    view = _view(tile, k, buffers)
    if job.queue == core.commands.tensor:
        later = Behind([], buffers.places, view.outputs)
        forms.lower(site, view, TileEmitter(core, job, buffers.places, buffers.columns, later.commands))
        if tile.finished:
            core.behind[tile] = later
        return
    forms.lower(site, view, TileEmitter(core, job, buffers.places, buffers.columns if not k else None))
    if tile.finished:
        _tap(core, tile, site, view.outputs, since)


def _tap(core: CoreProgram, tile: TileRun, site: OpContext, outputs: Sequence[Buffer], since: int) -> None:
    """Notes what a node has made where it is nowhere else to be seen."""
    stored = {tile.run.member.value(u.refs[0]) for u in tile.run.units if u.home == "output"}
    for value, buffer in zip(site.outputs, outputs, strict=True):
        if value.id not in stored:
            core.tap(value.id, buffer, since)
        for place in shown_in(tile.run.joins, value.id):
            core.tap(place.value, replace(buffer, box=place.box(buffer.box)), since)


def gathered(core: CoreProgram, job: Job) -> None:
    """The columns of a tile, or what lies in the padding around them."""
    tile, wanted = cast(GatherColumns, job.what)
    buffers, overheard, site = _buffers(tile), _Overheard(core.numerics), tile.run.member.sites[0]
    assert buffers.columns is not None
    forms.lower(site, _view(tile, 0, buffers), overheard)
    for opcode, fields in gather(overheard.conv, buffers.columns):
        if opcode == wanted:
            core.commands.compute(
                opcode, fields, buffers.places, job.node, job.tile, bool(tile.run.joins)
            )


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
        there = tile.run.place(ref, box)
        found.places.append((allocation, there))
        buffer = replace(_within(allocation, there, ref), box=box)
        if ref.home == "result":
            found.made[member.value(ref)] = buffer
        else:
            found.held[ref.member, ref.key] = buffer
    return found


def _view(tile: TileRun, k: int, buffers: _Buffers) -> TileView:
    member, site = tile.run.member, tile.run.member.sites[k]
    ranges = tile.ranges if not k else follower_ranges(member.layer.space, member.spaces[k], tile.ranges)
    inputs = tuple(
        (buffers.held.get((k, i)) or (buffers.made.get(value.id) if value is not None else None))
        if member.spaces[k].inputs[i] is not None or not member.spaces[k].joins else None
        for i, value in enumerate(site.inputs)
    )
    params: dict[str, Any] = {
        str(key): b for (m, key), b in buffers.held.items() if m == k and isinstance(key, str)
    }
    outputs = tuple(buffers.made[o.id] for o in site.outputs)
    sizes = {a.name: a.size for a in member.spaces[k].axes}
    return TileView(ranges, sizes, inputs, outputs, params, buffers.acc if k == 0 else None)
