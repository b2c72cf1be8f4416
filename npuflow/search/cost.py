"""Estimated cycles and bytes of a tiled layer, from tile parameters alone, for many
candidate tilings at once.

It sees sizes, orders and slot counts, never commands: the simulator's clock sees only commands. The two share
the target's constants and nothing else, and are compared on every build.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Compute
from npuflow.ir.space import DimMap
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import COLUMNS, PACK, Layer, MacMap, Ref, Stream
from npuflow.schedule.units import spans

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CandidateGrid:
    """Candidate tile sizes and tile counts per axis; every array has one entry per candidate.

    `memo`: what has been found for these candidates; layers with equal axes share a
    grid, and most of their streams.
    """

    sizes: Mapping[str, Ints]
    counts: Mapping[str, Ints]
    length: int
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def different(self, axis: str) -> tuple[list[int], Ints]:
        """The different sizes of an axis, and which of them each candidate has."""
        if axis not in self.memo:
            every = self.sizes[axis].tolist()
            which = {size: n for n, size in enumerate(dict.fromkeys(every))}
            self.memo[axis] = list(which), np.array([which[size] for size in every], np.int64)
        found: tuple[list[int], Ints] = self.memo[axis]
        return found

    def split(self, axis: str) -> npt.NDArray[np.bool_] | None:
        """Which candidates cut an axis; None where none does."""
        key = axis, "split"
        if key not in self.memo:
            several = self.counts[axis] > 1
            self.memo[key] = several if several.any() else None
        found: npt.NDArray[np.bool_] | None = self.memo[key]
        return found

    def take(self, index: Ints) -> CandidateGrid:
        return CandidateGrid(
            {a: s[index] for a, s in self.sizes.items()},
            {a: c[index] for a, c in self.counts.items()},
            len(index),
        )


# a nesting, and by stream "double", "single", "resident" or "there"
Try = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Traffic:
    """One stream: local bytes of a tile, tiles with different content, and per full tile the DMA's work."""

    local: Ints               # bytes of the largest tile, aligned
    distinct: Ints            # boxes
    total: Floats             # bytes when every distinct box moves once, in whole bursts
    rows: Floats              # contiguous rows of one tile
    commands: Ints            # DMA commands of one tile (0: packed with another stream)


@dataclass(frozen=True)
class Estimate:
    """Cycles by queue, external bytes, and the makespan of the pipeline: by nesting
    and slots, and by candidate."""

    load: Floats
    store: Floats
    tensor: Floats
    vector: Floats
    bus: Floats
    head: Floats              # loads before the first compute command can start
    early: Floats             # the part of them that waits for nobody: constants
    tail: Floats              # from the last load to the end
    bytes: Floats
    cycles: Floats


def _per_size(grid: CandidateGrid, axis: str, function: Callable[[int], tuple[int, ...]]) -> tuple[Ints, ...]:
    """Evaluate a function of one tile size on the few different sizes, and spread the
    results over the candidates."""
    unique, inverse = grid.different(axis)
    return tuple(np.array(column, np.int64)[inverse] for column in zip(*map(function, unique), strict=True))


def extents(ref: Ref, layer: Layer, grid: CandidateGrid) -> tuple[list[Ints], list[Ints]]:
    """Per dimension of an operand: the largest extent of a tile, and the sum of
    extents over its axis' tiles."""
    largest, summed = [], []
    seen: set[str] = set()
    for m, size in zip(ref.operand.maps, ref.operand.shape, strict=True):
        if m.axis is None:
            largest.append(np.full(grid.length, size, np.int64))
            summed.append(largest[-1])
            continue
        key = m, size
        if key not in grid.memo:                     # most streams of a layer are indexed alike
            grid.memo[key] = _per_size(grid, m.axis, partial(_spans, m, size, layer.space.axis(m.axis).size))
        big, total = grid.memo[key]
        largest.append(big)
        summed.append(big if m.axis in seen else total)
        seen.add(m.axis)
    return largest, summed


def _spans(m: DimMap, size: int, axis_size: int, tile: int) -> tuple[int, ...]:
    return spans(m, size, axis_size, tile)


def _aligned(values: Ints, unit: int) -> Ints:
    return -(-values // unit) * unit


def traffic(layer: Layer, machine: Machine, grid: CandidateGrid) -> list[Traffic]:
    """What each stream of the layer occupies and moves."""
    align, burst = machine.memory.slot_align, machine.memory.burst
    result: list[Traffic] = []
    packed: list[Stream] = []
    for stream in layer.streams:
        key = stream, align, burst
        if key not in grid.memo:
            grid.memo[key] = _moved(stream, layer, align, burst, grid)
        moved: Traffic = grid.memo[key]
        if stream.home == "const":
            moved = replace(moved, commands=_own_load(stream, packed, grid)) if packed else moved
            packed += [] if stream.refs[0].is_table else [stream]
        result.append(moved)
    return result


def _moved(stream: Stream, layer: Layer, align: int, burst: int, grid: CandidateGrid) -> Traffic:
    """One stream, in commands of its own."""
    ones = np.ones(grid.length, np.int64)
    distinct = ones
    for axis in stream.axes:
        distinct = distinct * grid.counts[axis]
    local, total, rows = np.zeros_like(ones), np.zeros(grid.length), np.ones(grid.length)
    for ref in stream.refs:
        largest, summed = extents(ref, layer, grid)
        tile = -(-reduce(np.multiply, largest) * ref.bits // 8) if largest else ones * ref.bytes(1)
        every = (
            reduce(np.multiply, summed).astype(np.float64) * ref.bits / 8
            if summed
            else tile.astype(np.float64)
        )
        for axis in stream.axes - ref.axes:
            every = every * grid.counts[axis]
        if stream.home == "const":
            local = local + _aligned(tile, PACK)
            total = total + every
        else:
            local = _aligned(tile, align)
            rows, run = _runs(ref, largest, grid.length)
            total = _bursts(every, run * ref.itemsize, burst)
    if stream.home == "const":
        local, total = _aligned(local, align), np.ceil(total / burst) * burst
    return Traffic(local, distinct, total, rows, ones)


def _own_load(stream: Stream, packed: Sequence[Stream], grid: CandidateGrid) -> Ints:
    """1 where the stream needs its own load, 0 where it is packed with an earlier one (same split axes)."""
    own = np.ones(grid.length, np.int64)
    for other in () if stream.refs[0].is_table else packed:
        same = np.ones(grid.length, bool)
        for axis in stream.axes ^ other.axes:
            same &= grid.counts[axis] == 1
        own = np.where(same, 0, own)
    return own


def _runs(ref: Ref, largest: Sequence[Ints], length: int) -> tuple[Floats, Floats]:
    """Contiguous rows of one tile and the elements of each."""
    rows, run = np.ones(length), np.ones(length)
    full = np.ones(length, bool)
    for dim in reversed(range(len(largest))):
        extent, size = largest[dim], ref.operand.shape[dim]
        run = np.where(full, run * extent, run)
        rows = np.where(full, rows, rows * extent)
        full &= (extent == size) & (dim not in ref.partial)
    return rows, run


def _bursts(total: Floats, run: Floats, burst: int) -> Floats:
    """Bytes when every row moves in whole bursts; `run` bytes a row, partial tiles counted as full ones."""
    return total / np.maximum(run, 1) * np.ceil(run / burst) * burst


def _loads(stream: Stream, moved: Traffic, order: Sequence[str], grid: CandidateGrid, resident: bool) -> Ints:
    """How often the stream's box changes when axes nest in this order (outermost first)."""
    if resident or not stream.axes:
        return moved.distinct
    loads = pending = np.ones(grid.length, np.int64)
    for axis in order:
        split = grid.split(axis)
        if split is not None:
            pending = pending * grid.counts[axis]
            if axis in stream.axes:
                loads = np.where(split, pending, loads)
    return loads


def tensor_cycles(layer: Layer, machine: Machine, grid: CandidateGrid) -> Floats:
    """Cycles of the MAC array over all tiles, edge waste included."""
    mac, c = layer.mac, machine.compute
    if mac is None:
        return np.zeros(grid.length)
    steps = np.ones(grid.length)
    for counts in grid.counts.values():
        steps = steps * counts
    cycles = np.full(grid.length, float(mac.kernel * c.slowness(*mac.bits)))
    for passes in _passes(layer, mac, c, grid):
        cycles = cycles * passes
    if mac.depthwise:
        alone, width = _lone_groups(layer, mac, grid), _width(layer, mac)
        each = (
            -(-width // c.array_cols)
            / width
            / (c.array_pixels if c.dataflow == "weight_stationary" else c.array_rows)
        )
        share = (1 - alone) / c.depthwise_macs + alone * each
        cycles = cycles * _points(layer, mac) * share + 0.5 * steps
    elif c.dataflow == "weight_stationary":
        rounds, tiles = _rounds(layer, mac, grid, c.array_pixels)
        cycles = cycles * (rounds + tiles * c.pass_cycles)
    else:
        rounds, _ = _rounds(layer, mac, grid, c.array_rows)
        depth = mac.kernel * (mac.group_rows or (layer.space.axis(mac.rows).size if mac.rows else 1))
        pieces = grid.counts[mac.rows] if mac.rows else 1
        cycles = cycles * rounds * (1 + pieces * c.pass_cycles / depth)
    return cycles + steps * (c.command_cycles + c.fill_cycles)


def _rounds(layer: Layer, mac: MacMap, grid: CandidateGrid, width: int) -> tuple[Floats, Floats]:
    """(array cycles of a pass over all position tiles, `width` positions in each; position tiles)."""
    rounds, tiles = np.zeros(grid.length), np.ones(grid.length)
    parts = []
    for name in mac.positions:
        size, tile = layer.space.axis(name).size, grid.sizes[name]
        parts.append(((size // tile, tile), ((size % tile > 0).astype(np.int64), size % tile)))
        tiles = tiles * grid.counts[name]
    for choice in product(*parts):
        count, points = np.ones(grid.length), np.ones(grid.length)
        for times, extent in choice:
            count, points = count * times, points * extent
        rounds = rounds + count * np.ceil(points / width)
    return rounds, tiles


def _lone_groups(layer: Layer, mac: MacMap, grid: CandidateGrid) -> Floats:
    """Share of a depthwise layer's groups that are the only one of their tile: to the
    array that is a dense layer."""
    assert mac.group_axis is not None
    one, size, tile = _width(layer, mac), layer.space.axis(mac.group_axis).size, grid.sizes[mac.group_axis]
    return (
        np.where(tile == one, 1.0, np.where(size % tile == one, one / size, 0.0))
        if size > one
        else np.ones(grid.length)
    )


def _width(layer: Layer, mac: MacMap) -> int:
    """Output channels of a group."""
    assert mac.group_axis is not None
    return layer.space.axis(mac.group_axis).multiple


def _points(layer: Layer, mac: MacMap) -> float:
    return float(np.prod([layer.space.axis(name).size for name in mac.positions], dtype=np.float64))


def _passes(layer: Layer, mac: MacMap, c: Compute, grid: CandidateGrid) -> Iterator[Floats]:
    """Factors of the number of array passes over all tiles: one for every axis that the array cuts."""
    depth = c.array_rows if c.dataflow == "weight_stationary" else 1
    for name, unit in ((mac.rows, depth), (mac.cols, c.array_cols)):
        if name is not None:
            size = layer.space.axis(name).size
            blocks = mac.blocks if name == mac.rows else replace(mac, part=0).blocks
            (cuts,) = _per_size(
                grid,
                name,
                lambda t, n=size, b=blocks, u=unit: (n // t * b(t, u) + b(n % t, u),),  # type: ignore[misc]
            )
            yield cuts.astype(np.float64)
    if mac.group_axis is not None:
        axis = layer.space.axis(mac.group_axis)
        each = (
            1.0
            if mac.depthwise
            else -(-mac.group_rows // depth) * -(-axis.multiple // c.array_cols) / axis.multiple
        )
        yield np.full(grid.length, axis.size * each)
    elif mac.rows is None and mac.group_rows:
        yield np.full(grid.length, float(-(-mac.group_rows // depth)))


def _gathering(
    layer: Layer, machine: Machine, stream: Stream, m: Traffic, grid: CandidateGrid, tries: Sequence[Try]
) -> Floats:
    """Cycles of the vector unit for gathering columns: more commands a tile where the window hangs over the
    input's edge, as it does at both ends."""
    copies, fills, c = np.ones(grid.length), np.zeros(grid.length), machine.compute
    for dim in stream.refs[0].operand.maps[2:]:
        if dim.axis is not None:
            copies = copies * (1 + (layer.gathers - 1) / grid.counts[dim.axis])
            fills = fills + 2 / grid.counts[dim.axis]
    again = np.array([_loads(stream, m, order, grid, False) for order, _ in tries])
    return again * (layer.gathered / m.distinct / c.vector_lanes + (copies + fills) * c.command_cycles)


def result_tiles(layer: Layer, grid: CandidateGrid) -> Ints:
    """Tiles of the result, of every candidate."""
    counts = [grid.counts[axis.name] for axis in layer.axes if axis.kind != "sum"]
    return reduce(np.multiply, counts, np.ones(grid.length, np.int64))


def estimate(
    layer: Layer, machine: Machine, grid: CandidateGrid, moved: Sequence[Traffic], tries: Sequence[Try],
    tensor: Floats,
) -> Estimate:
    """The pipeline's makespan: a row for every nesting and slot policy. `tensor`: see tensor_cycles."""
    d, c = machine.dma, machine.compute
    load: Floats = np.zeros((len(tries), grid.length))
    store = load_bus = store_bus = first_load = first_store = amount = early = shared = gather = load
    out_steps = result_tiles(layer, grid).astype(np.float64)
    for n, (stream, m) in enumerate(zip(layer.streams, moved, strict=True)):
        if stream.refs[0].key == COLUMNS:
            gather = _gathering(layer, machine, stream, m, grid, tries)
        if stream.home in ("acc", "inner") or tries[0][1][n] == "there":
            continue
        if stream.home != "output":
            times = np.array(
                [_loads(stream, m, order, grid, slots[n] == "resident") for order, slots in tries]
            )
        else:
            times = out_steps
        bus = m.total * times / m.distinct
        front = (c.command_cycles + d.setup_cycles + (m.rows - 1) * d.row_cycles) * m.commands
        inside = machine.inside and stream.home != "const"
        width = machine.activation_width if inside else machine.memory.external_bandwidth
        if stream.home != "output" and machine.apart not in stream.axes:
            bus = bus / machine.together
        shared, amount = (shared + bus / width, amount) if inside else (shared, amount + bus)
        if stream.home == "output":
            store, store_bus = store + times * front, store_bus + bus / width
            first_store = first_store + front + bus / width / times
        else:
            load, load_bus = load + times * front, load_bus + bus / width
            once = front + bus / width / times
            first_load = first_load + once
            if stream.home == "const":
                early = early + once
    load, store = load + load_bus, store + store_bus
    vector = (
        layer.vector_work / c.vector_lanes + out_steps * c.command_cycles * (1 + layer.followers) + gather
    )
    tile_tensor, tile_vector = tensor / out_steps, vector / out_steps
    bus = load_bus + store_bus
    tail = tile_vector + first_store
    # While a queue moves bytes, what the other moves over the same bus comes on top;
    # while it is set up, nothing does.
    beside, facing = 1 - 1 / out_steps, shared - store_bus if machine.inside else load_bus
    slowed_load = load + beside * store_bus * facing / np.maximum(load, 1)
    slowed_store = store + beside * facing * store_bus / np.maximum(store, 1)
    cycles = reduce(np.maximum, (
        slowed_load + tile_tensor + tail,
        first_load + tensor + tail,
        first_load + tile_tensor + vector + first_store,
        first_load + tile_tensor + tile_vector + slowed_store,
        np.maximum(bus - shared, shared) + d.setup_cycles + tile_tensor + tile_vector,
    ))
    alone = [i for i, (_, slots) in enumerate(tries) if "single" in slots]
    if alone:
        cycles[alone] = np.maximum(cycles, load + tensor + vector + store)[alone]
    tensor = np.broadcast_to(tensor, cycles.shape)
    return Estimate(load, store, tensor, vector, bus, first_load, early, tile_tensor + tail, amount, cycles)
