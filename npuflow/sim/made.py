"""Which command made an element of a tensor: the tile in which a difference lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuflow.hw.elements import ELEMENTS
from npuflow.hw.region import DATA, Region, dense
from npuflow.program.access import regions
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.sim.machine import owner

Index = tuple[int, ...]


@dataclass(frozen=True)
class Tile:
    """A box of a tensor (first and end per dimension) that one command made, the `number`-th of `count` in
    running order.
    """

    core: int
    command: int
    node: int
    number: int
    count: int
    box: tuple[tuple[int, int], ...]


def tile_of(program: Program, value: str, index: Index) -> Tile | None:
    """The tile that holds an element of an integer tensor; None if no command of the program made it (the
    host did).
    """
    return _in_local(program, value, index) or _in_data(program, value, index)


def _in_local(program: Program, value: str, index: Index) -> Tile | None:
    """By the taps: boxes that commands leave in local memory."""
    if value not in program.taps.values:
        return None
    position = {place: i for i, place in enumerate(order_of(program).sequence)}
    taps = [
        (position[c, t.command], c, t)
        for c, core in enumerate(program.taps.cores)
        for t in core
        if t.value == value
    ]
    taps.sort(key=lambda entry: entry[0])
    for number, (_, core, tap) in enumerate(taps):
        if all(a <= i < b for i, (a, b) in zip(index, tap.box, strict=True)):
            return Tile(core, tap.command, program.taps.values[value].node, number + 1, len(taps), tap.box)
    return None


def _in_data(program: Program, value: str, index: Index) -> Tile | None:
    """By the STOREs of the nodes that write these bytes: the last one that covers the element."""
    values = program.meta["values"]
    if value not in values:
        return None
    entry, mine = values[value], owner(values, value)
    writers = {
        v["node"] for name, v in values.items() if v.get("node") is not None and owner(values, name) == mine
    }
    shape, item = tuple(entry["shape"]), ELEMENTS[entry["dtype"]].bytes
    place = entry["address"] + sum(i * s for i, s in zip(index, dense(shape, item), strict=True))
    end = entry["address"] + int(np.prod(shape)) * item
    stores = [
        (core, number, command.node, region)
        for core, number in order_of(program).sequence
        if (command := program.decoded[core][number]).opcode == "STORE" and command.node in writers
        for region in regions(command)
        if region.write
        and region.space == DATA
        and region.span[0] < end
        and entry["address"] < region.span[1]
    ]
    for at in range(len(stores) - 1, -1, -1):
        core, number, node, region = stores[at]
        if _covers(region, place):
            return Tile(
                core, number, node, at + 1, len(stores), _box(region, entry["address"], end, shape, item)
            )
    return None


def _covers(region: Region, place: int) -> bool:
    lo, hi = region.span
    if not lo <= place < hi:
        return False
    offsets = np.zeros(1, np.int64)
    for d, s in zip(region.dims, region.strides, strict=True):
        offsets = (offsets[:, None] + np.arange(d, dtype=np.int64)[None] * s).reshape(-1)
    begun = place - region.address - offsets
    return bool(((begun >= 0) & (begun < region.size)).any())


def _box(region: Region, start: int, end: int, shape: Index, item: int) -> tuple[tuple[int, int], ...]:
    """The region as first and end per dimension of the tensor, as far as it lies in it."""
    lo, hi = max(region.span[0], start), min(region.span[1], end)
    first = np.unravel_index((lo - start) // item, shape)
    last = np.unravel_index((hi - item - start) // item, shape)
    return tuple((int(min(a, b)), int(max(a, b)) + 1) for a, b in zip(first, last, strict=True))
