"""What a part keeps in local memory tile by tile: operands that share a slot, how many slots, how large."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np

from npuflow.ir.space import DimMap, IterationDomain, Operand
from npuflow.schedule.allocate import aligned
from npuflow.schedule.choice import TileChoice
from npuflow.schedule.geometry import Member, Stripe
from npuflow.schedule.model import PACK, Home, Layer, Ref, Stream, bundles


@dataclass(frozen=True)
class SlotUnit:
    """Operands that share a slot and change together."""

    refs: tuple[Ref, ...]
    slots: int
    size: int                             # bytes of a slot

    @property
    def home(self) -> Home:
        return self.refs[0].home


def units_of(layer: Layer, choice: TileChoice, whole: Layer) -> list[SlotUnit]:
    """Streams as the tiling of a window leaves them: constants whose split axes
    coincide are packed into one block.

    `whole`: the layer without the window, whose operands the units speak of.
    """
    own = {(r.home, r.key, r.member): r for s in whole.streams for r in s.refs}
    return [
        replace(u, refs=tuple(own[r.home, r.key, r.member] for r in u.refs)) for u in _units(layer, choice)
    ]


def _units(layer: Layer, choice: TileChoice) -> list[SlotUnit]:
    sizes = dict(choice.sizes)
    split = frozenset(a.name for a in layer.axes if sizes[a.name] < a.size)
    slots = {ref: n for stream, n in zip(layer.streams, choice.slots, strict=True) for ref in stream.refs}
    constants = [r for s in layer.streams if s.home == "const" for r in s.refs]
    own = [(s, n) for s, n in zip(layer.streams, choice.slots, strict=True) if s.home != "const"]
    units = [SlotUnit(s.refs, n, _bytes(layer, sizes, s)) for s, n in own]
    return units + [
        SlotUnit(s.refs, max(slots[r] for r in s.refs), _bytes(layer, sizes, s))
        for s in bundles(constants, split)
    ]


def _bytes(layer: Layer, sizes: Mapping[str, int], stream: Stream) -> int:
    total = 0
    for ref in stream.refs:
        dims = [
            size if m.axis is None else spans(m, size, layer.space.axis(m.axis).size, sizes[m.axis])[0]
            for m, size in zip(ref.operand.maps, ref.operand.shape, strict=True)
        ]
        total += aligned(ref.bytes(prod(dims)), PACK)
    return total


@lru_cache(maxsize=1 << 16)
def spans(m: DimMap, size: int, axis_size: int, tile: int) -> tuple[int, int]:
    """(largest, summed) clipped extent of one tensor dimension over all tiles of its axis."""
    starts = np.arange(0, axis_size, tile)
    ends = np.minimum(starts + tile, axis_size)
    lo = np.clip(starts * m.num // m.den + m.lo, 0, size)
    hi = np.clip((ends - 1) * m.num // m.den + m.hi + 1, lo, size)
    extents = hi - lo
    return int(extents.max()), int(extents.sum())


def in_windows(members: Sequence[Member], strips: Sequence[Sequence[Stripe]]) -> tuple[Layer, ...]:
    """Each member's layer in the largest window of any strip, of every core's strips."""
    found = []
    for p, member in enumerate(members):
        windows = [w for own in strips for s in own if (w := s.windows[p]) is not None]
        names = [a.name for a in member.layer.axes] if windows else []
        lengths = {a: max(w[a][1] - w[a][0] for w in windows) for a in names}
        within = frozenset(a for a in names if any(w[a][0] for w in windows))
        found.append(windowed(member.layer, lengths, within) if windows else member.layer)
    return tuple(found)


def windowed(layer: Layer, lengths: Mapping[str, int], within: Collection[str] = ()) -> Layer:
    """The layer of windows of so much of its axes, operands as large as a window can ever need
    them. `within`: axes on which some window does not begin at their start, so that tiles need
    not reach over the edge there."""
    cut = {a.name: lengths[a.name] for a in layer.axes if lengths[a.name] < a.size or a.name in within}
    if not cut:
        return layer
    return _based(layer, tuple(sorted(cut.items())))


@lru_cache(maxsize=1 << 14)
def _based(layer: Layer, cut: tuple[tuple[str, int], ...]) -> Layer:
    lengths, space = dict(cut), layer.space

    def operand(o: Operand) -> Operand:
        maps, shape = [], []
        for m, size in zip(o.maps, o.shape, strict=True):
            if m.axis in lengths:
                # where a window begins within a step
                loose = int(m.den > 1 and space.axis(m.axis).multiple % m.den != 0)
                m = DimMap(m.axis, m.num, m.den, 0, m.hi - m.lo + loose)
                size = min(size, m.window(0, lengths[m.axis])[1])  # type: ignore[index]
            maps.append(m)
            shape.append(size)
        return Operand(o.name, tuple(shape), tuple(maps))

    def ref(r: Ref) -> Ref:
        own = operand(r.operand)
        sizes = zip(own.shape, r.operand.shape, strict=True)
        partial = r.partial.union(d for d, (part, whole) in enumerate(sizes) if part < whole)
        return replace(r, operand=own, partial=partial if r.home != "const" else r.partial)

    axes = tuple(replace(a, size=lengths.get(a.name, a.size)) for a in space.axes)
    small = IterationDomain(
        axes,
        tuple(operand(o) if o is not None else None for o in space.inputs),
        tuple(map(operand, space.outputs)),
        tuple(map(operand, space.params)),
        space.macs,
        space.ops,
        operand(space.accumulator) if space.accumulator else None,
        space.copies,
    )
    streams = tuple(Stream(s.home, tuple(map(ref, s.refs))) for s in layer.streams)
    return replace(layer, space=small, streams=streams, kept=tuple(map(ref, layer.kept)))
