"""Data movers cut into pieces that fit a staging slot, and what they cost in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from npuflow.engine.cost import Machine
from npuflow.engine.tiling_search import Costs
from npuflow.ir.op import Move


def staging_bytes(machine: Machine) -> int:
    """Bytes of each of the two staging slots of a mover."""
    return machine.memory.local_bytes // 4 // machine.memory.local_align * machine.memory.local_align


def chunks_of(dims: Sequence[int], most: int) -> tuple[int, ...]:
    """The piece of a copy: whole inner dimensions, as much as fits, one of the outer ones."""
    piece, room = [1] * len(dims), max(1, most)
    for i in range(len(dims) - 1, -1, -1):
        piece[i] = min(dims[i], room)
        if piece[i] < dims[i]:
            break
        room //= dims[i]
    return tuple(piece)


def move_costs(moves: Sequence[Move], itemsize: Sequence[int], machine: Machine) -> Costs:
    """Cycles and bytes of all moves of a node, by rows, pieces and bursts."""
    load = store = bus = amount = 0.0
    first = 0.0
    staging = staging_bytes(machine)
    for move in moves:
        item = itemsize[move.output]
        count = prod(move.dims)
        pieces = ceil(count / max(1, prod(chunks_of(move.dims, staging // item))))
        put_front, put_bus, put = _side(move.dims, move.dst_strides, item, pieces, machine)
        store, bus, amount = store + put_front + put_bus, bus + put_bus, amount + put
        first = max(first, (put_front + put_bus) / pieces)
        if move.source is not None:
            get_front, get_bus, got = _side(move.dims, move.src_strides, item, pieces, machine)
            load, bus, amount = load + get_front + get_bus, bus + get_bus, amount + got
    cycles = max(load + first, store + first, bus)
    plain = 2.0 * sum(prod(m.dims) * itemsize[m.output] for m in moves)
    return Costs(cycles, load, store, 0.0, 0.0, bus, first, first, amount, 0.0, plain)


def _side(dims: Sequence[int], strides: Sequence[int], item: int, pieces: int, machine: Machine) -> tuple[float, float, float]:
    """(front-end cycles, bus cycles, bytes in bursts) of one side of a move."""
    run = prod(dims)
    if len(dims) > 1 or (strides and strides[-1] != 1):
        run = dims[-1] if strides and strides[-1] == 1 else 1
    d, burst = machine.dma, machine.memory.burst
    rows = max(float(pieces), prod(dims) / run)
    amount = rows * ceil(prod(dims) / rows * item / burst) * burst
    front = pieces * (machine.compute.command_cycles + d.setup_cycles) + (rows - pieces) * d.row_cycles
    return front, amount / machine.memory.external_bandwidth, amount
