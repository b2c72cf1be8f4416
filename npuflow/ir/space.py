"""Iteration spaces: from a tile of the iteration axes to the box of every operand that it touches.

MACs, bytes, footprints, halos and legal splits all derive from an `IterationDomain`; no operator states them
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Literal

Interval = tuple[int, int]           # half open
Box = tuple[Interval, ...]           # one interval per dimension of a tensor
Tile = Mapping[str, Interval]        # one interval per axis

Kind = Literal["par", "sum", "whole"]


@dataclass(frozen=True)
class Axis:
    """`par`: any split gives independent results; `sum`: a split needs accumulation
    in order; `whole`: never split.

    `multiple`: splits fall on multiples of it (a channel group, a quantisation group).
    """

    name: str
    size: int
    kind: Kind = "par"
    multiple: int = 1


@dataclass(frozen=True)
class DimMap:
    """Indices of one tensor dimension that the axis range [a, b) touches, clipped to the dimension:

    [floor(a * num / den) + lo, floor((b - 1) * num / den) + hi + 1).  `axis` None: the whole dimension.
    A strided window: num = stride, lo = -pad, hi = (kernel - 1) * dilation - pad.
    """

    axis: str | None = None
    num: int = 1
    den: int = 1
    lo: int = 0
    hi: int = 0

    def window(self, a: int, b: int) -> Interval:
        """Unclipped interval: may start below 0 or end above the dimension (padding)."""
        return (a * self.num) // self.den + self.lo, ((b - 1) * self.num) // self.den + self.hi + 1


@dataclass(frozen=True)
class Operand:
    """How one operand (an input, a parameter, an output) is indexed by the axes."""

    name: str                 # "x", "weight", "bias", "multiplier", "table", "y", ...
    shape: tuple[int, ...]
    maps: tuple[DimMap, ...]

    def window(self, tile: Tile) -> Box:
        """Unclipped box of a tile: what padding is judged by."""
        return tuple(
            (0, size) if m.axis is None else m.window(*tile[m.axis])
            for m, size in zip(self.maps, self.shape, strict=True)
        )

    def box(self, tile: Tile) -> Box:
        """Box of the operand that a tile touches, clipped to the tensor (never negative in extent)."""
        clipped = []                              # a search asks for a hundred thousand: no calls in here
        for m, size in zip(self.maps, self.shape, strict=True):
            low, high = 0, size
            if m.axis is not None:
                a, b = tile[m.axis]
                low, high = a * m.num // m.den + m.lo, (b - 1) * m.num // m.den + m.hi + 1
                low = 0 if low < 0 else size if low > size else low
                high = low if high < low else size if high > size else high
            clipped.append((low, high))
        return tuple(clipped)


@dataclass(frozen=True)
class IterationDomain:
    """Axes of the loop nest and the operand maps. `inputs` are graph inputs by position (None: not read
    by the tile, e.g. an absent optional input), `params` the integer parameter arrays by name,
    `outputs` the results, `macs` multiply-accumulates per point of the axes' product, `ops` vector
    operations per output element, `copies`: one command for each input, or for the output of one input,
    copies it into its place, `fetches`: the result is loaded row by row from a constant in external memory,
    by indices in local memory.
    """

    axes: tuple[Axis, ...]
    inputs: tuple[Operand | None, ...]
    outputs: tuple[Operand, ...]
    params: tuple[Operand, ...] = ()
    macs: int = 0
    ops: int = 0
    accumulator: Operand | None = None    # present when partial sums live in local memory between commands
    copies: bool = False
    fetches: bool = False
    _index: dict[str, Axis] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._index.update({a.name: a for a in self.axes})

    @property
    def joins(self) -> bool:
        """Whether several inputs are copied, each to its place along the one dimension that it has whole."""
        return self.copies and len(self.inputs) > 1

    def axis(self, name: str) -> Axis:
        return self._index[name]

    @property
    def full(self) -> dict[str, Interval]:
        """The tile that is the whole space."""
        return {a.name: (0, a.size) for a in self.axes}

    @property
    def total_macs(self) -> int:
        return self.macs * prod(a.size for a in self.axes)

    def tile_macs(self, tile: Tile) -> int:
        return self.macs * prod(b - a for a, b in tile.values())


def extent(box: Box) -> tuple[int, ...]:
    return tuple(b - a for a, b in box)


def elements(box: Box) -> int:
    return prod(b - a for a, b in box)


def whole(name: str, shape: tuple[int, ...]) -> Operand:
    """An operand that every tile reads entirely (a table, a scalar)."""
    return Operand(name, shape, tuple(DimMap() for _ in shape))
