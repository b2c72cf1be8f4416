"""What an operator's `lower` sees of one tile: resident buffers, axis ranges, and where commands go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Protocol

from npuflow.hw.target import Numerics
from npuflow.ir.space import Box, extent


@dataclass(frozen=True)
class Buffer:
    """A tensor's box resident in local memory: byte address, container dtype, byte
    strides by tensor dimension."""

    address: int
    dtype: str
    box: Box
    strides: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        return extent(self.box)

    def as4(self, name: str) -> dict[str, object]:
        """Fields of a 4-dimensional tensor operand: leading dimensions of extent 1 (stride 0) are added."""
        pad = (0,) * (4 - len(self.strides))
        return {name: self.address, f"{name}_type": self.dtype, f"{name}_strides": (*pad, *self.strides)}

    def image(self, name: str) -> dict[str, object]:
        """Fields of an [n, c, w] or [n, c, h, w] image, with its extents (1-D: of one row)."""
        strides, dims = self.strides, self.extent
        if len(strides) == 3:
            strides, dims = (*strides[:2], 0, strides[2]), (*dims[:2], 1, dims[2])
        return {
            name: self.address,
            f"{name}_type": self.dtype,
            f"{name}_strides": strides,
            f"{name}_dims": dims,
        }

    def quads(self) -> Iterator[Buffer]:
        """Parts of four dimensions or fewer: one for every place along the dimensions before them."""
        more = max(0, len(self.box) - 4)
        for at in product(*map(range, self.extent[:more])):
            address = self.address + sum(i * stride for i, stride in zip(at, self.strides, strict=False))
            yield Buffer(address, self.dtype, self.box[more:], self.strides[more:])

    def dims4(self) -> tuple[int, ...]:
        return (1,) * (4 - len(self.box)) + self.extent

    def as3(self, name: str, first: int, last: int) -> tuple[dict[str, object], tuple[int, int, int]]:
        """Fields and extents of the view [A, R, I], R being dimensions first..last-1: outer,
        reduced and inner parts merged.
        """
        parts = [(0, first), (first, last), (last, len(self.box))]
        merged = [_merge(self.extent[a:b], self.strides[a:b]) for a, b in parts]
        strides = tuple(s for _, s in merged)
        fields3 = {name: self.address, f"{name}_type": self.dtype, f"{name}_strides": strides}
        a, r, i = (e for e, _ in merged)
        return fields3, (a, r, i)

    def part(self, at: Mapping[int, int]) -> Buffer:
        """One index of some dimensions."""
        address = self.address + sum(i * self.strides[d] for d, i in at.items())
        box = tuple(
            (lo + at[d], lo + at[d] + 1) if d in at else (lo, hi) for d, (lo, hi) in enumerate(self.box)
        )
        return Buffer(address, self.dtype, box, self.strides)


def blocks3(axis: int, *buffers: Buffer) -> Iterator[tuple[Buffer, ...]]:
    """Parts of buffers that are one [A, R, I] view each, R being dimension `axis`. All of a buffer where its
    dimensions before the axis, and those behind it, lie behind each other without gaps; else, as where a
    tile is a part of what is held, one for every index of those that do not. Extents are equal but for the
    axis."""
    rank = len(buffers[0].box)

    def dense(first: int, last: int) -> bool:
        return all(_dense(b.extent[first:last], b.strides[first:last]) for b in buffers)

    outer = next(k for k in range(axis + 1) if dense(k, axis))
    inner = next(k for k in range(axis + 1, rank + 1) if dense(k, rank))
    walked = (*range(outer), *range(axis + 1, inner))
    for at in product(*(range(buffers[0].extent[d]) for d in walked)):
        yield tuple(b.part(dict(zip(walked, at, strict=True))) for b in buffers)


def _dense(extents: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    real = [(e, s) for e, s in zip(extents, strides, strict=True) if e != 1]
    return all(outer == e * s for (_, outer), (e, s) in pairwise(real))


def _merge(extents: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """One (extent, stride) for several dimensions; they must lie behind each other without gaps."""
    extent_all, stride = 1, 0
    for size, step in zip(reversed(extents), reversed(strides), strict=True):
        if size == 1:
            continue
        assert extent_all == 1 or step == stride * extent_all, (
            f"dimensions {extents} with strides {strides} do not merge"
        )
        stride = step if extent_all == 1 else stride
        extent_all *= size
    return extent_all, stride


@dataclass(frozen=True)
class TileView:
    """What `lower` sees: the axis ranges of this tile and the resident buffers. `acc`
    holds partial sums (dense)."""

    ranges: Mapping[str, tuple[int, int]]
    sizes: Mapping[str, int]
    inputs: tuple[Buffer | None, ...]
    outputs: tuple[Buffer, ...]
    params: Mapping[str, Buffer]
    acc: Buffer | None = None

    def first(self, axis: str) -> bool:
        return self.ranges[axis][0] == 0

    def last(self, axis: str) -> bool:
        return self.ranges[axis][1] == self.sizes[axis]

    def input(self, index: int) -> Buffer:
        buffer = self.inputs[index]
        assert buffer is not None, f"input {index} has no buffer"
        return buffer


class Emitter(Protocol):
    """Receives commands for the compute queues; loads, stores and waits are the code generator's business."""

    numerics: Numerics

    def emit(self, opcode: str, **values: object) -> None:
        """One command of hw.isa; a field left out is 0 (optional pointers: hw.command.NONE). Enum fields
        take names, vectors tuples."""

    def constant(self, index: int) -> int:
        """The address in external memory (CONST) of the whole constant that is an input of the node."""
