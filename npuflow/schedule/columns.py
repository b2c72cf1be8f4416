"""Convolutions with few channels, as products over channels and taps: columns that the
vector unit gathers feed the array.

An array of 64 rows does little with three channels at a time. Gathered, a window's taps are channels too,
and the kernel is one point. Weights lie as they did. A layer is computed so where the slower of array and
vector unit becomes faster by it.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from npuflow.hw.elements import having
from npuflow.hw.target import Compute, Memory
from npuflow.ir.space import DimMap, IterationDomain, Operand
from npuflow.schedule import tuned
from npuflow.schedule.model import COLUMNS, Layer, MacMap, Ref, Stream


def gathered(layer: Layer, compute: Compute, memory: Memory) -> Layer:
    """The layer with columns, where that pays; else the layer as it is."""
    space, mac = layer.space, layer.mac
    if mac is None or mac.part or not slides(space) or compute.dataflow != "weight_stationary":
        return layer
    x, weight, y = space.inputs[0], space.inputs[1], space.outputs[0]
    assert x is not None and weight is not None
    depth, taps, outputs = weight.shape[1], space.macs, weight.shape[0]
    if mac.bits[2] and mac.bits[2] not in having("float"):        # blocks run along channels
        return layer
    moving = next(
        r
        for s in layer.streams
        for r in (*s.refs, *layer.kept)
        if r.member == 0 and r.key == 0 and r.home != "output"
    )
    points, slow = prod(y.shape) // outputs, compute.slowness(*mac.bits)
    passes = ceil(outputs / compute.array_cols) * ceil(points / compute.array_pixels)
    as_is, by_columns = (
        compute.paced(taps * ceil(depth / compute.array_rows) * passes, slow),
        compute.paced(ceil(depth * taps / compute.array_rows) * passes, slow),
    )
    vector = layer.vector_work / compute.vector_lanes
    gather = depth * taps * points / compute.vector_lanes + (2 * taps + 4) * compute.command_cycles
    roomy = depth * taps * moving.itemsize * tuned.GATHERED_ROOM * tuned.GATHERED_SHARE <= memory.local_bytes
    if not roomy or max(by_columns, vector + gather) >= max(as_is, vector):
        return layer
    axes = tuple(replace(a, kind="whole") if a.kind == "sum" else a for a in space.axes)
    maps = tuple(DimMap() if i == 1 else m for i, m in enumerate(y.maps))
    shape = (y.shape[0], depth * taps, *y.shape[2:])
    columns = Ref("inner", COLUMNS, Operand("columns", shape, maps), moving.dtype)
    positions = tuple(m.axis for m in maps if m.axis is not None)
    array = MacMap(None, mac.cols, positions, 1, None, depth * taps, bits=mac.bits)
    streams = (*layer.streams, Stream("inner", (columns,)))
    return replace(
        layer, space=replace(space, axes=axes), streams=streams, mac=array, gathers=weight.shape[2]
    )


def slides(space: IterationDomain) -> bool:
    """Whether a constant weight [out, in, taps...] slides over an input, every
    channel meeting every output."""
    if len(space.inputs) < 2 or space.macs < 2 or len(space.outputs) != 1:
        return False
    x, weight = space.inputs[0], space.inputs[1]
    sums = [a.name for a in space.axes if a.kind == "sum"]
    if x is None or weight is None or len(sums) != 1 or len(x.shape) < 3 or len(weight.shape) != len(x.shape):
        return False
    channels = x.maps[1].axis == sums[0] == weight.maps[1].axis
    return channels and all(m.axis is None for m in weight.maps[2:]) and space.macs == prod(weight.shape[2:])
