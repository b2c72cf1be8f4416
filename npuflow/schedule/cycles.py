"""What one tile costs on each engine, from its extents alone: array passes with their
edges, vector operations, DMA rows.

The simulator's clock works the same figures out of decoded commands; the two share the
target's constants and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from math import ceil, prod

from npuflow.hw.target import Compute
from npuflow.ir.space import Box, Interval, IterationDomain, Tile, elements
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import Layer, MacMap, Ref

Extents = Mapping[str, int]


@dataclass(frozen=True)
class Transfer:
    """A DMA command: cycles before its bytes move, and the bytes, in whole bursts."""

    front: int
    bytes: int


def extents_of(tile: Tile) -> dict[str, int]:
    return {axis: b - a for axis, (a, b) in tile.items()}


def array_cycles(layer: Layer, extents: Extents, c: Compute) -> int:
    """Cycles of the MAC array for a tile of a layer; 0 where the layer multiplies nothing."""
    mac = layer.mac
    if mac is None:
        return 0
    points = [extents[a] for a in mac.positions]
    batch, points = (points[:-1], points[-1:]) if _is_product(layer, mac) else ([], points)
    commands, rounds = prod(batch[:-1]), prod(batch[-1:])   # a command takes the last dimension of a batch
    work, passes = _passes(layer, mac, extents, prod(points), c)
    slow = c.slowness(*mac.bits)
    busy = c.paced(rounds * work, slow) + c.paced(rounds * passes * c.pass_cycles, slow)
    return commands * (c.command_cycles + c.fill_cycles + busy)


def _passes(layer: Layer, mac: MacMap, extents: Extents, points: int, c: Compute) -> tuple[int, int]:
    """(array cycles, passes) over one block of weights of every group in the tile."""
    depth, width, groups = _block(layer, mac, extents)
    if depth == 1 and groups > 1:
        return ceil(mac.kernel * groups * width * points / c.depthwise_macs), 0
    columns = groups * ceil(width / c.array_cols)
    if c.dataflow == "weight_stationary":
        passes = columns * mac.kernel * mac.blocks(depth, c.array_rows)
        return passes * ceil(points / c.array_pixels), passes
    passes = columns * ceil(points / c.array_rows)
    return passes * mac.kernel * depth, passes


def _block(layer: Layer, mac: MacMap, extents: Extents) -> tuple[int, int, int]:
    """Input channels and output channels of a group, and groups in the tile."""
    if mac.group_axis is None:
        return (
            extents[mac.rows] if mac.rows else max(1, mac.group_rows),
            extents[mac.cols] if mac.cols else 1,
            1,
        )
    each = layer.space.axis(mac.group_axis).multiple
    return mac.group_rows, each, extents[mac.group_axis] // each


def _is_product(layer: Layer, mac: MacMap) -> bool:
    """Whether the array holds a matrix, or one per sample of a batch, and not the weights of a window."""
    held, matrix = held_operand(layer), {mac.rows, mac.cols}
    return held is not None and None not in matrix and {m.axis for m in held.operand.maps[-2:]} == matrix


def held_operand(layer: Layer) -> Ref | None:
    """The second operand, which the array holds while the first streams through it; None: its weights lie
    in a layout of their own."""
    refs: Iterable[Ref] = (r for s in layer.streams for r in s.refs if r.member == 0)
    found = (r for r in (*refs, *layer.kept) if r.key == 1 and r.home in ("input", "const", "source"))
    return next(found, None)


def vector_cycles(space: IterationDomain, tile: Tile, finished: bool, c: Compute) -> int:
    """Cycles of the vector unit for a node's tile, after what the array did."""
    made = elements(space.outputs[0].box(tile))
    ending = c.command_cycles + ceil(made / c.vector_lanes) if finished else 0
    if space.macs:
        return ending                                       # its requantisation
    if space.accumulator is not None:                       # a reduction, and behind it its requantisation
        commands, each = _reductions(space, tile)
        return commands * (c.command_cycles + ceil(each / c.vector_lanes)) + ending
    if space.copies:
        inputs = [o for o in space.inputs if o is not None]
        sizes = [elements(o.box(tile)) for o in (inputs if len(space.inputs) > 1 else space.outputs)]
        return sum(c.command_cycles + ceil(n / c.vector_lanes) for n in sizes)
    # operands that one command after the other takes in
    folds = len(space.inputs) - 1
    commands = folds if folds == space.ops else 1
    return commands * (c.command_cycles + ceil(made * space.ops / max(1, commands) / c.vector_lanes))


def _reductions(space: IterationDomain, tile: Tile) -> tuple[int, int]:
    """Commands that reduce a tile, and the elements that each takes: a command has two kept runs
    of dimensions, and one more."""
    read, made = next(o for o in space.inputs if o is not None), {m.axis for m in space.outputs[0].maps}
    box = [(m.axis in made, b - a) for m, (a, b) in zip(read.maps, read.box(tile), strict=True) if b - a > 1]
    runs = [(kept, prod(n for _, n in run)) for kept, run in groupby(box, key=lambda d: d[0])]
    commands = prod([n for kept, n in runs if kept][:-2]) * prod([n for kept, n in runs if not kept][:-1])
    return commands, prod(n for _, n in box) // commands


def gather_cycles(space: IterationDomain, tile: Tile, c: Compute) -> tuple[int, int]:
    """Cycles of the vector unit to lay a tile's columns: to fill what lies in the padding, to
    copy windows in runs of taps."""
    x, weight, y = space.inputs[0], space.inputs[1], space.outputs[0]
    assert x is not None and weight is not None
    runs, spans = [], []
    outside, found = x.window(tile), x.box(tile)
    for d, taps in enumerate(weight.shape[2:], 2):
        m, outputs = x.maps[d], y.box(tile)[d]
        step = (m.hi - m.lo) // (taps - 1) if taps > 1 else 1
        size = outputs[1] - outputs[0]
        reached = [
            _reached(outside[d][0] + t * step - found[d][0], m.num, found[d][1] - found[d][0], size)
            for t in range(taps)
        ]
        runs.append([(len(list(same)), b - a) for (a, b), same in groupby(reached)])
        spans.append((size, max(a for a, _ in reached), min(b for _, b in reached)))
    each = prod(b - a for a, b in y.box(tile)[:1]) * weight.shape[1]      # samples and channels
    copies = [each * prod(t * n for t, n in pair) for pair in product(*runs) if all(n > 0 for _, n in pair)]
    fills = [each * prod(weight.shape[2:]) * n for n in _around(spans)]
    filled, copied = (
        sum(c.command_cycles + ceil(n / c.vector_lanes) for n in sizes) for sizes in (fills, copies)
    )
    return filled, copied


def _reached(low: int, stride: int, extent: int, size: int) -> Interval:
    """Outputs whose window position lies inside the input, for a tap that begins `low`
    from the input's first row."""
    first = min(size, max(0, -(low // stride)))
    return first, max(first, min(size, (extent - 1 - low) // stride + 1))


def _around(spans: Sequence[tuple[int, int, int]]) -> list[int]:
    """Areas of the rectangles around the part that every tap reaches."""
    (high, a, b), (wide, c, d) = spans if len(spans) > 1 else ((1, 0, 1), spans[0])
    if a >= b or c >= d:
        return [high * wide]
    return [n for n in (a * wide, (high - b) * wide, (b - a) * c, (b - a) * (wide - d)) if n]


def box_transfer(shape: Sequence[int], box: Box, item: int, machine: Machine) -> Transfer:
    """A box of a dense tensor in external memory: its rows are runs of bytes that lie together."""
    run, rows, whole = item, 1, True
    for (a, b), size in zip(reversed(box), reversed(shape), strict=True):
        if whole:
            run *= b - a
        else:
            rows *= b - a
        whole = whole and b - a == size
    return rows_transfer(rows, run, machine)


def strided_transfer(dims: Sequence[tuple[int, int]], item: int, machine: Machine) -> Transfer:
    """Elements at any strides, (count, stride) by dimension: what touches or overlaps is one row."""
    run, total = item, item * prod(n for n, _ in dims)
    for n, stride in sorted(((n, abs(s) * item) for n, s in dims if n > 1 and s), key=lambda d: d[1]):
        if stride > run:
            break
        run += stride * (n - 1)
    return rows_transfer(max(1, total // run), run, machine)


def rows_transfer(rows: int, run: int, machine: Machine) -> Transfer:
    burst, dma = machine.memory.burst, machine.dma
    front = machine.compute.command_cycles + dma.setup_cycles + dma.row_cycles * (rows - 1)
    return Transfer(front, rows * ceil(run / burst) * burst)
