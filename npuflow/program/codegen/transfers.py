"""Loads and stores as commands: DMA fields of boxes, borders, packed constants and pieces of data movers.

Loads of the same box, or of the same constants, by several cores become one shared load each. Only loads
between the same two barriers meet, in an order that agrees with each core's own: whatever a core waits for
before such a load was begun before it on all cores, so that they cannot wait for each other. What meets is
what the tiles are of, not what their bytes happen to be: tables and weights often repeat, and a repeated
block that met another tile's would keep both cores from the loads in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npuflow.ir.op import OpContext
from npuflow.ir.space import Box, extent
from npuflow.ir.types import Array
from npuflow.program.codegen.commands import Pending, Touch
from npuflow.program.codegen.consts import pack
from npuflow.program.codegen.core import CoreProgram
from npuflow.program.codegen.dma import box_copy, dense, dma, in_step
from npuflow.schedule.jobs import (
    Allocation,
    BorderCopy,
    BoxCopy,
    Constants,
    ConstantShare,
    Job,
    Phase,
    PieceCopy,
    Place,
)
from npuflow.schedule.model import Ref
from npuflow.schedule.movers import item_of


def share_loads(phase: Phase, commands: Mapping[int, Pending]) -> None:
    """Sets the masks of loads that cores make together, where their dimensions can be
    the same. `commands`: by job."""
    for together in phase.shared:
        same: Sequence[Pending] = [commands[n] for n in together]
        copies = in_step([p.values for p in same])
        mask = sum(1 << phase.jobs[n].core for n in together)
        for pending, values in zip(same, copies or (), strict=False):
            pending.values = {**values, "mask": mask}


Dims = Sequence[tuple[int, int, int]]
Fields = dict[str, object]


def transfer(core: CoreProgram, job: Job) -> None:
    """The LOAD or STORE of a job."""
    outside, what = job.outside, job.what
    if isinstance(what, ConstantShare):
        _share(core, job, what)
        return
    (place,) = job.writes or job.reads
    allocation = place[0]
    if outside is None:
        block = _block(job)
        fields = box_copy(
            "CONST", core.consts.add(block), (len(block),), ((0, len(block)),), allocation.low, 1
        )
        core.commands.load(fields, [place], job.node, None, job.tile)
        return
    storage, address = core.data.of(outside.value) if job.writes else core.data.open(outside.value)
    view: object = core.data.seen_as(outside.value)
    if isinstance(what, BoxCopy):
        shape, item, layout = what.ref.operand.shape, what.ref.itemsize, _around(place, outside.box)
        fields, whole = (
            box_copy("DATA", address, shape, outside.box, allocation.low, item, layout),
            outside.box,
        )
    elif isinstance(what, BorderCopy):
        fields, whole = _border(what, address, allocation), what.border.box
    else:
        assert isinstance(what, PieceCopy)
        fields, whole, view = _piece(what, address, allocation, bool(job.writes)), (), None
    touch = Touch(view, whole, *outside.span)
    if job.writes:
        cut = core.data.cut(outside.value) if outside.value in core.data.graph.values else None
        touch = touch if cut is None else Touch(None, (), *cut)
        core.commands.load(fields, [place], job.node, (storage, touch), job.tile)
    else:
        core.commands.store(fields, place, job.node, storage, touch, job.tile)


def _around(place: Place, box: Box) -> Box:
    """What lies around a box in local memory, by the indices of the value: this one may lie somewhere in
    another one."""
    allocation, there = place
    if not allocation.laid:
        return box
    moved = [a - b for (a, _), (b, _) in zip(there or box, box, strict=True)]
    return tuple((a - by, b - by) for (a, b), by in zip(allocation.laid, moved, strict=True))


def _border(what: BorderCopy, address: int, allocation: Allocation) -> Fields:
    """A box of a value in local memory, from or to bytes of its own in external memory."""
    box, item, size = what.border.box, what.item, extent(what.border.box)
    strides = dense(extent(allocation.laid), item)
    at = sum((a - lo) * s for (a, _), (lo, _), s in zip(box, allocation.laid, strides, strict=True))
    return dma("DATA", address, allocation.low + at, item, size, dense(size, item), strides)


def _piece(what: PieceCopy, base: int, allocation: Allocation, load: bool) -> Fields:
    piece, item = what.piece, item_of(what.site, what.move)
    dims: Dims = piece.load if load else piece.store
    address = base + (piece.src_offset if load else piece.dst_offset) * item
    # every element is the same one, so the local side may repeat what is there
    if what.move.source is None:
        most = allocation.size // item
        dims = [(n, far, 0) for n, far, _ in dims]
        if dims and dims[-1][0] <= most and dims[-1][1] == 1:
            dims[-1] = (dims[-1][0], 1, 1)
    sizes, far, near = zip(*dims, strict=True) if dims else ((), (), ())
    local = allocation.low + (piece.near * item if load else 0)
    return dma("DATA", address, local, item, sizes, [s * item for s in far], [s * item for s in near])


def _share(core: CoreProgram, job: Job, what: ConstantShare) -> None:
    """Some of the bytes of constants that lie one behind the other, in memory as in the section."""
    blocks = map(_packed, what.constants)
    every = b"".join(block.ljust(size, b"\0") for block, size in zip(blocks, what.sizes, strict=True))
    size, address, local = job.bytes, core.consts.add(every) + what.first, job.writes[0][0].low + what.first
    fields = box_copy("CONST", address, (size,), ((0, size),), local, 1)
    core.commands.load(fields, job.writes, job.node, None, job.tile, part=True)


def _packed(what: Constants) -> bytes:
    return pack([(_array(what.member.sites[r.member], r), r.dtype) for r in what.refs], what.boxes)[0]


def _block(job: Job) -> bytes:
    """The constants that a job loads."""
    what = job.what
    if isinstance(what, Constants):
        return _packed(what)
    assert isinstance(what, PieceCopy) and what.move.source is not None
    array, piece = what.site.consts[what.move.source], what.piece
    assert array is not None
    flat = np.ascontiguousarray(array).reshape(-1)
    index = piece.src_offset + sum(
        np.arange(n).reshape([-1 if d == i else 1 for d in range(len(piece.load))]) * s
        for i, (n, s, _) in enumerate(piece.load)
    )
    return flat[np.asarray(index)].tobytes()


def _array(site: OpContext, ref: Ref) -> Array:
    if isinstance(ref.key, str):
        return site.array(ref.key)
    array = site.consts[ref.key]
    assert array is not None
    return array
