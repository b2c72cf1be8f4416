"""Data movers cut into pieces that fit a staging slot: read in the source's order,
written in the destination's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.moves import Move, merged
from npuflow.place.partition import is_npu
from npuflow.schedule.choice import Costs
from npuflow.schedule.machine import Machine

# elements of a constant that are written at once and stored repeatedly
FILL_MOST = 4096
# a strided row is read whole when at most this many times too much comes in
WASTE = 8


def moves_of(graph: Graph) -> dict[int, tuple[Move, ...]]:
    """Moves of every integer node that only moves data."""
    found = {}
    for index, node in enumerate(graph.nodes):
        if is_npu(node):
            moves = node.op.moves(graph.site(node))
            if moves is not None:
                found[index] = moves
    return found


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
    near: int = 0             # where the load begins in its slot, in elements


@dataclass(frozen=True)
class Assembly:
    """Moves that together fill one output, block by block: their elements lie between each other's there, so
    that every store of one of them alone would be rows of few bytes. Loads put them in place in local
    memory, and whole blocks are stored."""

    blocks: int
    block: int                # elements of the output
    at_once: int              # blocks in a slot
    shapes: tuple[Shape, ...]

    def loads(self, start: int, count: int) -> Iterator[Piece]:
        """Each move's part of some blocks."""
        for shape in self.shapes:
            rest = list(zip(shape.dims, shape.src, shape.dst, strict=True))[1:]
            dims = [(count, shape.src[0], self.block), *rest]
            load = tuple(sorted(dims, key=lambda d: -d[1]))
            source, size = shape.src_offset + start * shape.src[0], count * self.block
            yield Piece(tuple(n for n, _, _ in dims), source, 0, size, load, (), shape.dst_offset)

    def store(self, start: int, count: int) -> Piece:
        size = count * self.block
        return Piece((size,), 0, start * self.block, size, (), ((size, 1, 1),))

    def transfers(self, item: int, machine: Machine) -> tuple[float, float]:
        """Cycles of all loads, and of all stores."""
        width, load, store = machine.activation_width, 0.0, 0.0
        for start in range(0, self.blocks, self.at_once):
            count = min(self.at_once, self.blocks - start)
            for piece in self.loads(start, count):
                front, amount = _side([(n, s) for n, s, _ in piece.load], item, machine)
                load += front + amount / width
            front, amount = _side([(count * self.block, 1)], item, machine)
            store += front + amount / width
        return load, store


def assembled(moves: Sequence[Move], itemsize: Sequence[int], machine: Machine) -> Assembly | None:
    """The moves as one assembly, where they are one and it is faster."""
    if len(moves) < 2 or any(m.source is None or m.output != moves[0].output for m in moves):
        return None
    item, shapes = itemsize[moves[0].output], tuple(_outermost(shape_of(m)) for m in moves)
    blocks, block = shapes[0].dims[0], shapes[0].dst[0]
    filled = sum(prod(s.dims[1:]) for s in shapes)
    alike = all(s.dims[0] == blocks and s.dst[0] == block and min(s.dst) > 0 for s in shapes)
    at_once = min(blocks, staging_bytes(machine) // item // max(1, block))
    inside = all(
        s.dst_offset >= 0
        and s.dst_offset + sum((n - 1) * d for n, d in zip(s.dims[1:], s.dst[1:], strict=True)) < block
        for s in shapes
    )
    if blocks < 2 or not alike or not inside or filled != block or not at_once:
        return None
    places = np.concatenate([_places(s) for s in shapes])
    if len(np.unique(places)) < block:
        return None
    found = Assembly(blocks, block, at_once, shapes)
    apart = _apart(moves, itemsize, machine).cycles
    return found if max(found.transfers(item, machine)) < apart / 2 else None


def _places(shape: Shape) -> npt.NDArray[np.int64]:
    """Elements of a block that a move fills."""
    at = np.array([shape.dst_offset], np.int64)
    for n, stride in zip(shape.dims[1:], shape.dst[1:], strict=True):
        at = (at[:, None] + np.arange(n) * stride).reshape(-1)
    return at


def _outermost(shape: Shape) -> Shape:
    """The dimension with the longest strides in the destination first."""
    order = sorted(range(len(shape.dims)), key=lambda i: -abs(shape.dst[i]))
    dims, src, dst = (tuple(part[i] for i in order) for part in (shape.dims, shape.src, shape.dst))
    return Shape(dims, src, dst, shape.src_offset, shape.dst_offset)


def staging_bytes(machine: Machine) -> int:
    """Bytes of each of the two staging slots of a mover."""
    return machine.memory.local_bytes // 4 // machine.memory.slot_align * machine.memory.slot_align


def staging(moves: Sequence[Move], itemsize: Sequence[int], machine: Machine) -> int:
    """Bytes of a slot through which these moves go."""
    if (together := assembled(moves, itemsize, machine)) is not None:
        return together.at_once * together.block * itemsize[moves[0].output]
    return max((piece_bytes(m, itemsize[m.output], machine) for m in moves), default=1)


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
    """A box that fits: dimensions with long strides on both sides are cut first, or another one before them
    where that leaves fewer rows outside. A picture with the channels last is cut between pixels, not between
    channels: what comes in is one row then."""
    usual = _by_strides(shape)
    box = _cut(shape, usual, most)
    if box == shape.dims:
        return box
    others = (_cut(shape, [i, *(k for k in usual if k != i)], most) for i in usual[1:])
    return min((box, *others), key=lambda one: _rows_outside(shape, one))


def _by_strides(shape: Shape) -> list[int]:
    return sorted(range(len(shape.dims)), key=lambda i: -min(abs(shape.src[i]) or 1 << 40, abs(shape.dst[i])))


def _rows_outside(shape: Shape, box: Sequence[int]) -> int:
    """Rows of external memory that all pieces of a move read and write."""
    pieces = prod(ceil(d / p) for d, p in zip(shape.dims, box, strict=True))
    read = _runs([(n, s) for n, s, _ in local_form(box, shape.src)[2]])[0]
    return pieces * (read + _runs(list(zip(box, shape.dst, strict=True)))[0])


def _cut(shape: Shape, order: Sequence[int], most: int) -> tuple[int, ...]:
    """The largest box that fits, its dimensions cut in this order."""
    piece = list(shape.dims)
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
    """Cycles and bytes of all moves of a node."""
    together = assembled(moves, itemsize, machine)
    if together is None:
        return _apart(moves, itemsize, machine)
    item = itemsize[moves[0].output]
    load, store = together.transfers(item, machine)
    amount = 2.0 * together.blocks * together.block * item
    first, bus = min(load, store) / together.blocks * together.at_once, amount / machine.activation_width
    outside = 0.0 if machine.inside else amount
    cycles = max(load + first, store + first, bus)
    return Costs(cycles, load, store, 0.0, 0.0, bus, first, 0.0, first, outside, 0.0, amount)


def _apart(moves: Sequence[Move], itemsize: Sequence[int], machine: Machine) -> Costs:
    """One move after the other, by pieces, rows and bursts of its largest piece."""
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
    rows, run = _runs(dims)
    burst = machine.memory.burst
    front = machine.compute.command_cycles + machine.dma.setup_cycles + (rows - 1) * machine.dma.row_cycles
    return float(front), float(rows * ceil(run * item / burst) * burst)


def _runs(dims: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Rows of a strided box outside, and elements of each that follow on each other."""
    run, rows = 1, 1
    for n, stride in sorted(dims, key=lambda d: abs(d[1])):
        if n == 1:
            continue
        if rows == 1 and stride == run:
            run *= n
        else:
            rows *= n
    return rows, run
