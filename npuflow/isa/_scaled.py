"""What the opcodes share that scale the sums of groups: fields, and how the groups of a tile are cut."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod

import numpy as np

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import element, numbers, pointer
from npuflow.hw.region import Region
from npuflow.hw.target import Compute
from npuflow.kernels import exact
from npuflow.kernels.memory import SimulatedMemory
from npuflow.program import access

FIELDS = (*numbers("group"), pointer("scales"), element("scales", "scale"))


def pieces(c: Command, terms: int) -> list[tuple[int, int]]:
    """First and one past the last input channel of every group of a tile."""
    size = c.number("group")
    return [(at, min(at + size, terms)) for at in range(0, terms, size)]


def passes(c: Command, compute: Compute, whole: tuple[int, int, int]) -> tuple[int, int, int]:
    """Array cycles, passes and multiply-accumulates of a product of matrices whose sums end with each
    group, from those of one whose sums do not: a group that has fewer terms than the array has rows
    leaves rows idle.
    """
    work, count, macs = whole
    if compute.dataflow == "weight_stationary":
        blocks = sum(ceil((b - a) / compute.array_rows) for a, b in pieces(c, c.number("k")))
        count = c.number("batch") * blocks * ceil(c.number("n") / compute.array_cols)
        work = count * ceil(c.number("m") / compute.array_pixels)
    return work, count, macs


def zeros_shape(groups: int, channels: int) -> tuple[int, int]:
    """What several zero points of a weight are dense in: [groups, channels]."""
    return groups, channels


def accesses(c: Command, groups: int, channels: int) -> Iterator[Region]:
    yield from access.flat(c, "scales", groups * channels, ELEMENTS[c.text("scales_type")].bytes)


def zeros(memory: SimulatedMemory, c: Command, name: str, groups: int, channels: int) -> exact.Wide:
    """[B, groups, channels]"""
    shape = zeros_shape(groups, channels) if c.pointer(f"{name}_zeros") is not None else (1, channels)
    found = exact.zeros(memory, c, name, prod(shape)).reshape(-1, *shape)
    return np.broadcast_to(found, (len(found), groups, channels))


def scales(memory: SimulatedMemory, c: Command, groups: int, channels: int) -> exact.Wide:
    """[B, groups, channels]"""
    found = memory.flat(c.core, c.number("scales"), c.text("scales_type"), groups * channels)
    return np.asarray(found.astype(np.int64).reshape(-1, groups, channels))
