"""Data movers as commands: LOAD into a staging slot, STORE out of it in another order, FILL for constants."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from npuflow.engine.codegen.commands import Touch
from npuflow.engine.codegen.dma import dma
from npuflow.engine.codegen.slots import Slot
from npuflow.engine.codegen.tiles import Bench, TileEmitter
from npuflow.engine.tiling.moves import FILL_MOST, Piece, pieces_of
from npuflow.hw.numerics import quantize
from npuflow.ir.op import Move, Site

Dims = Sequence[tuple[int, int, int]]


def emit_moves(
    bench: Bench, site: Site, moves: Sequence[Move], staging: int, addresses: Sequence[int], size: int, node: int
) -> None:
    """All moves of one node in pieces of at most `staging` bytes, through two slots of `size` bytes."""
    slots = [bench.commands.local.open(a, size) for a in addresses] if moves else []
    step = 0
    for move in moves:
        if move.source is None:
            _fill(bench, site, move, staging, slots[step % 2], node)
            step += 1
            continue
        for piece in pieces_of(move, staging // _item(site, move)):
            _load(bench, site, move, piece, slots[step % 2], node, step)
            _store(bench, site, move, piece, slots[step % 2], node, step)
            step += 1


def _item(site: Site, move: Move) -> int:
    return np.dtype(site.outputs[move.output].dtype).itemsize


def _copy(space: str, address: int, local: int, item: int, dims: Dims) -> dict[str, object]:
    sizes, far, near = zip(*dims, strict=True) if dims else ((), (), ())
    return dma(space, address, local, item, sizes, [s * item for s in far], [s * item for s in near])


def _touch(address: int, item: int, dims: Dims) -> Touch:
    """The bytes from the lowest to the highest that a copy meets."""
    low = address + item * sum(min(0, (n - 1) * s) for n, s, _ in dims)
    high = address + item * (1 + sum(max(0, (n - 1) * s) for n, s, _ in dims))
    return Touch(None, (), low, high)


def _load(bench: Bench, site: Site, move: Move, piece: Piece, slot: Slot, node: int, step: int) -> None:
    assert move.source is not None
    value, array, item = site.inputs[move.source], site.consts[move.source], _item(site, move)
    assert value is not None
    if array is None:
        storage, base = bench.data.of(value.id)
        address = base + piece.src_offset * item
        values = _copy("DATA", address, slot.low, item, piece.load)
        slot.renew()
        bench.commands.load(values, (slot, None), node, (storage, _touch(address, item, piece.load)), step)
        return
    flat = np.ascontiguousarray(array).reshape(-1)
    index = piece.src_offset + sum(
        np.arange(n).reshape([-1 if d == i else 1 for d in range(len(piece.load))]) * s for i, (n, s, _) in enumerate(piece.load)
    )
    block = flat[np.asarray(index)].tobytes()
    values = dma("CONST", bench.consts.add(block), slot.low, 1, (len(block),), (1,), (1,))
    slot.renew()
    bench.commands.load(values, (slot, None), node, None, step)


def _store(bench: Bench, site: Site, move: Move, piece: Piece, slot: Slot, node: int, step: int) -> None:
    item = _item(site, move)
    storage, base = bench.data.open(site.outputs[move.output].id)
    address = base + piece.dst_offset * item
    values = _copy("DATA", address, slot.low, item, piece.store)
    bench.commands.store(values, (slot, None), node, storage, _touch(address, item, piece.store), step)


def _fill(bench: Bench, site: Site, move: Move, staging: int, slot: Slot, node: int) -> None:
    """One run of the constant is written in local memory and stored as often as needed."""
    value, item = site.outputs[move.output], _item(site, move)
    quant = value.quant
    assert quant is not None
    code = int(quantize(move.value, quant.scale[0], quant.zero_point[0], quant.lo, quant.hi))
    most = max(1, min(staging // item, FILL_MOST, prod(move.dims)))
    address = slot.low
    slot.renew()
    emitter = TileEmitter(bench, [(slot, None)], node, 0)
    emitter.emit("FILL", y=address, y_type=value.dtype, y_strides=(0, 0, 0, item), dims=(1, 1, 1, most), value=code)
    for piece in pieces_of(move, most):
        # every element is the same one, so the local side may repeat what is there
        dims = [(n, far, 0) for n, far, _ in piece.store]
        if dims and dims[-1][0] <= most and dims[-1][1] == 1:
            dims[-1] = (dims[-1][0], 1, 1)
        _store(bench, site, move, Piece(piece.dims, 0, piece.dst_offset, piece.size, (), tuple(dims)), slot, node, 0)
