"""Data movers cut into pieces that fit a staging slot: read in the source's order,
written in the destination's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from npuflow.engine.schedule.choice import Costs
from npuflow.engine.schedule.machine import Machine
from npuflow.ir.moves import Move, merged

# elements of a constant that are written at once and stored repeatedly
FILL_MOST = 4096
# a strided row is read whole when at most this many times too much comes in
WASTE = 8


@dataclass(frozen=True)
class Shape:
    """A move with source strides made non-negative: dimensions, strides and offsets in elements."""

    dims: tuple[int, ...]
    src: tuple[int, ...]
    dst: tuple[int, ...]
    src_offset: int
    dst_offset: int


@dataclass(frozen=True)
class Piece:
    """One LOAD and one STORE through local memory, in elements. `near`: local strides of the dimensions."""

    dims: tuple[int, ...]
    src_offset: int
    dst_offset: int
    size: int                 # local elements
    load: tuple[tuple[int, int, int], ...]     # (extent, external stride, local stride), outermost first
    store: tuple[tuple[int, int, int], ...]


def staging_bytes(machine: Machine) -> int:
    """Bytes of each of the two staging slots of a mover."""
    return machine.memory.local_bytes // 4 // machine.memory.slot_align * machine.memory.slot_align


def piece_bytes(move: Move, item: int, machine: Machine) -> int:
    """Local bytes of a move's largest piece, its first."""
    most = staging_bytes(machine) // item
    if move.source is None:
        return max(1, min(most, FILL_MOST, prod(move.dims))) * item
    shape = shape_of(move)
    return max(1, local_form(chunks_of(shape, most), shape.src)[1]) * item


def shape_of(move: Move) -> Shape:
    plain = merged(move)
    src, dst = list(plain.src_strides or (0,) * len(plain.dims)), list(plain.dst_strides)
    a, b = plain.src_offset, plain.dst_offset
    for i, (n, s) in enumerate(zip(plain.dims, src, strict=True)):
        if s < 0:
            a, b, src[i], dst[i] = a + (n - 1) * s, b + (n - 1) * dst[i], -s, -dst[i]
    return Shape(plain.dims, tuple(src), tuple(dst), a, b)


def local_form(dims: Sequence[int], src: Sequence[int]) -> tuple[list[int], int, list[tuple[int, int, int]]]:
    """(local stride per dimension, local elements, LOAD dimensions) of a box read in the source's order."""
    near, size = [0] * len(dims), 1
    load: list[tuple[int, int, int]] = []
    for i in sorted((i for i in range(len(dims)) if src[i]), key=lambda i: src[i]):
        stride, count = src[i], dims[i]
        if not load and 1 < stride <= WASTE and count > 1:
            near[i], size = stride, (count - 1) * stride + 1
            load.append((size, 1, 1))
            continue
        near[i] = size
        load.append((count, stride, size))
        size *= count
    return near, size, load[::-1]


def chunks_of(shape: Shape, most: int) -> tuple[int, ...]:
    """The largest box that fits: dimensions with long strides on both sides are cut first."""
    piece = list(shape.dims)
    order = sorted(range(len(piece)), key=lambda i: -min(abs(shape.src[i]) or 1 << 40, abs(shape.dst[i])))
    for i in order:
        size = local_form(piece, shape.src)[1]
        if size <= most:
            break
        piece[i] = max(1, piece[i] * most // size)
    return tuple(piece)


def pieces_of(move: Move, most: int) -> Iterator[Piece]:
    shape = shape_of(move)
    box = chunks_of(shape, most)
    for start in product(*[range(0, d, p) for d, p in zip(shape.dims, box, strict=True)]):
        dims = tuple(min(p, d - s) for d, p, s in zip(shape.dims, box, start, strict=True))
        near, size, load = local_form(dims, shape.src)
        store = sorted(zip(dims, shape.dst, near, strict=True), key=lambda d: -abs(d[1]))
        yield Piece(
            dims,
            shape.src_offset + sum(a * s for a, s in zip(start, shape.src, strict=True)),
            shape.dst_offset + sum(a * s for a, s in zip(start, shape.dst, strict=True)),
            size, tuple(load), tuple(store),
        )


def move_costs(moves: Sequence[Move], itemsize: Sequence[int], machine: Machine) -> Costs:
    """Cycles and bytes of all moves of a node, by pieces, rows and bursts of its largest piece."""
    load = store = bus = amount = first = 0.0
    for move in moves:
        item, shape = itemsize[move.output], shape_of(move)
        box = chunks_of(shape, staging_bytes(machine) // item)
        count = prod(ceil(d / p) for d, p in zip(shape.dims, box, strict=True))
        share = prod(shape.dims) / prod(box) / count       # the last pieces are smaller
        put = _side([(n, s) for n, s in zip(box, shape.dst, strict=True)], item, machine)
        got = (0.0, 0.0)
        if move.source is not None:
            got = _side([(n, s) for n, s, _ in local_form(box, shape.src)[2]], item, machine)
        width = machine.activation_width
        for front, bytes_moved, is_load in ((*got, True), (*put, False)):
            cycles = count * (front + share * bytes_moved / width) if front else 0.0
            load, store = (load + cycles, store) if is_load else (load, store + cycles)
            bus, amount = bus + count * share * bytes_moved / width, amount + count * share * bytes_moved
            first = max(first, cycles / count)
    amount = 0.0 if machine.inside else amount
    cycles = max(load + first, store + first, bus)
    plain = 2.0 * sum(prod(m.dims) * itemsize[m.output] for m in moves)
    return Costs(cycles, load, store, 0.0, 0.0, bus, first, 0.0, first, amount, 0.0, plain)


def _side(dims: Sequence[tuple[int, int]], item: int, machine: Machine) -> tuple[float, float]:
    """(front-end cycles, bytes in bursts) of one transfer of a piece."""
    run, rows = 1, 1
    for n, stride in sorted(dims, key=lambda d: abs(d[1])):
        if n == 1:
            continue
        if rows == 1 and stride == run:
            run *= n
        else:
            rows *= n
    burst = machine.memory.burst
    front = machine.compute.command_cycles + machine.dma.setup_cycles + (rows - 1) * machine.dma.row_cycles
    return float(front), float(rows * ceil(run * item / burst) * burst)
