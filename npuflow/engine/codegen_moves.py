"""Data movers as commands: strided LOAD into a staging slot, strided STORE out of it, FILL for constants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np

from npuflow.engine.codegen_commands import Slot, Touch
from npuflow.engine.codegen_dma import dense, dma
from npuflow.engine.codegen_tiles import Bench, TileEmitter
from npuflow.engine.tiling_moves import chunks_of
from npuflow.hw.numerics import quantize
from npuflow.ir.graph import Site
from npuflow.ir.movement import merged
from npuflow.ir.op import Move

FILL_MOST = 4096                        # elements of a constant that are written at once and stored repeatedly


def emit_moves(bench: Bench, site: Site, moves: Sequence[tuple[int, Move]], staging: int, node: int) -> None:
    """All moves of one node; `staging` bytes in each of two slots."""
    copies = [m for _, m in moves if m.source is not None]
    fills = [m for _, m in moves if m.source is None]
    if copies:
        slots = [bench.commands.local.open(a, staging) for a in bench.ring.take([staging, staging])]
        turn = step = 0
        for move in copies:
            for dims, src, dst in _chunks(merged(move), site, staging):
                _copy(bench, site, move, dims, src, dst, slots[turn % 2], node, step)
                turn, step = turn + 1, step + 1
    for move in fills:
        _fill(bench, site, merged(move), staging, node)


def _chunks(move: Move, site: Site, staging: int) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """(dims, source offset, destination offset) of every piece that fits the staging slot."""
    item = np.dtype(site.outputs[move.output].dtype).itemsize
    piece = chunks_of(move.dims, staging // item)
    sources = move.src_strides or (0,) * len(move.dims)
    for start in product(*[range(0, d, p) for d, p in zip(move.dims, piece, strict=True)]):
        dims = tuple(min(p, d - s) for d, p, s in zip(move.dims, piece, start, strict=True))
        src = move.src_offset + sum(a * s for a, s in zip(start, sources, strict=True))
        dst = move.dst_offset + sum(a * s for a, s in zip(start, move.dst_strides, strict=True))
        yield dims, src, dst


def _span(base: int, dims: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    low = base + sum(min(0, (d - 1) * s) for d, s in zip(dims, strides, strict=True))
    high = base + sum(max(0, (d - 1) * s) for d, s in zip(dims, strides, strict=True))
    return low, high


def _touch(address: int, offset: int, dims: Sequence[int], strides: Sequence[int], item: int) -> Touch:
    low, high = _span(offset, dims, strides)
    return Touch(None, (), address + low * item, address + (high + 1) * item)


def _copy(
    bench: Bench, site: Site, move: Move, dims: tuple[int, ...], src: int, dst: int, slot: Slot, node: int, step: int
) -> None:
    plain = merged(move)
    assert plain.source is not None
    value, item = site.inputs[plain.source], np.dtype(site.outputs[plain.output].dtype).itemsize
    assert value is not None
    array, near = site.consts[plain.source], dense(dims, item)
    far = tuple(s * item for s in plain.src_strides)
    if array is not None:
        flat = np.ascontiguousarray(array).reshape(-1)
        block = np.lib.stride_tricks.as_strided(flat[src:], dims, far) if flat.size else flat
        data = np.ascontiguousarray(block).tobytes()
        values = dma("CONST", bench.consts.add(data), slot.low, 1, (len(data),), (1,), (1,))
        bench.commands.load(values, slot, node, None, step)
    else:
        storage, address = bench.data.of(value.id)
        touch = _touch(address, src, dims, plain.src_strides, item)
        values = dma("DATA", address + src * item, slot.low, item, dims, far, near)
        bench.commands.load(values, slot, node, (storage, touch), step)
    storage, address = bench.data.open(site.outputs[plain.output].id)
    touch = _touch(address, dst, dims, plain.dst_strides, item)
    out = tuple(s * item for s in plain.dst_strides)
    bench.commands.store(dma("DATA", address + dst * item, slot.low, item, dims, out, near), slot, node, storage, touch, step)


def _fill(bench: Bench, site: Site, move: Move, staging: int, node: int) -> None:
    """One run of the constant is written in local memory and stored as often as needed."""
    value = site.outputs[move.output]
    quant, item = value.quant, np.dtype(value.dtype).itemsize
    assert quant is not None
    code = int(quantize(move.value, quant.scale[0], quant.zero_point[0], quant.lo, quant.hi))
    most = max(1, min(staging // item, FILL_MOST, prod(move.dims)))
    (address,) = bench.ring.take([most * item])
    slot = bench.commands.local.open(address, most * item)
    emitter = TileEmitter(bench, [slot], node, 0)
    emitter.emit("FILL", y=address, y_type=value.dtype, y_strides=(0, 0, 0, item), dims=(1, 1, 1, most), value=code)
    storage, base = bench.data.open(value.id)
    piece = chunks_of(move.dims, most)
    for start in product(*[range(0, d, p) for d, p in zip(move.dims, piece, strict=True)]):
        dims = tuple(min(p, d - s) for d, p, s in zip(move.dims, piece, start, strict=True))
        dst = move.dst_offset + sum(a * s for a, s in zip(start, move.dst_strides, strict=True))
        touch = _touch(base, dst, dims, move.dst_strides, item)
        out = tuple(s * item for s in move.dst_strides)
        values = dma("DATA", base + dst * item, address, item, dims, out, dense(dims, item))
        bench.commands.store(values, slot, node, storage, touch, 0)
