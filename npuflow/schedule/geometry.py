"""Which box of every value a group needs, makes and keeps, strip by strip and core
by core, halos included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, product

from npuflow.ir.op import OpContext
from npuflow.ir.space import Box, Interval, IterationDomain, Tile, elements
from npuflow.schedule.groups import Cut
from npuflow.schedule.model import Layer, Ref, leads


@dataclass(frozen=True)
class Member:
    """One part of a group with all that its operators say: its layer, and the value
    behind every activation operand."""

    nodes: tuple[int, ...]
    sites: tuple[OpContext, ...]
    spaces: tuple[IterationDomain, ...]
    layer: Layer

    @cached_property
    def inputs(self) -> tuple[tuple[str, Ref], ...]:
        refs = [r for s in self.layer.streams for r in s.refs if r.home == "input"]
        refs += [r for r in self.layer.kept if r.home == "source"]
        return tuple((self.value(r), r) for r in refs)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        refs = [r for s in self.layer.streams for r in s.refs if r.home == "output"]
        refs += [r for r in self.layer.kept if r.home == "result"]
        return tuple(self.value(r) for r in refs)

    @cached_property
    def can_split(self) -> bool:
        """Whether boxes of the results say which tile makes them."""
        return leads(self.layer.space)

    def value(self, ref: Ref) -> str:
        site = self.sites[ref.member]
        found = site.inputs[int(ref.key)] if ref.home in ("input", "source") else site.outputs[int(ref.key)]
        assert found is not None
        return found.id

    def rounded(self, box: Box) -> Box:
        """The box grown to what tiles can make: axes that are never split whole,
        others on their multiples."""
        space, found = self.layer.space, []
        for m, (a, b) in zip(space.outputs[0].maps, box, strict=True):
            axis = space.axis(m.axis) if m.axis is not None else None
            if axis is not None and axis.kind != "par":
                a, b = 0, axis.size
            elif axis is not None and axis.multiple > 1:
                a, b = (
                    a // axis.multiple * axis.multiple,
                    min(axis.size, -(-b // axis.multiple) * axis.multiple),
                )
            found.append((a, b))
        return tuple(found)

    def tile(self, box: Box) -> Tile:
        """The tile of the axes that makes a box of the results."""
        space = self.layer.space
        found = dict(space.full)
        for m, interval in zip(space.outputs[0].maps, box, strict=True):
            if m.axis is not None:
                found[m.axis] = interval
        return found


class Uncuttable(Exception):
    """These results cannot be cut this way: a streamed result would be made twice."""


@dataclass(frozen=True)
class RollingBuffer:
    """The buffer of a held value in one strip: the box that it is laid out for, which of its slots, and how
    it fills."""

    box: Box
    slot: int
    copied: Box | None                    # comes from the slot before
    fresh: Box | None                     # made or loaded in this strip


@dataclass(frozen=True)
class Stripe:
    """One round over the parts: the tile of each (None: nothing to do), and the buffers of the values."""

    windows: tuple[Tile | None, ...]
    holds: Mapping[str, RollingBuffer]


@dataclass
class _State:
    box: Box
    slot: int = 0


@dataclass
class GroupWalk:
    """One core's way through a group. `results`: values that somebody outside needs, with their shapes;
    `rows`: of values of which only some are needed, the dimension and these rows; `dims`: the dimension along
    which cores cut a value, where it is not that of the last result (`cut_dims.py`)."""

    members: Sequence[Member]
    results: Mapping[str, tuple[int, ...]]
    strips: Sequence[Cut]
    cores: Cut
    held: Mapping[str, int]
    core: int = 0
    state: dict[str, _State] = field(default_factory=dict)
    rows: Mapping[str, tuple[int, Interval]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)

    def run(self, most: int | None = None) -> list[Stripe]:
        """All strips, or the first few."""
        found = list(islice(self._strips(), most))
        totals: dict[str, Box] = {}
        for strip in found:
            for value, hold in strip.holds.items():
                if self.held[value] == 1:
                    totals[value] = hull(totals.get(value), hold.box)
        return [
            Stripe(
                s.windows,
                {
                    v: RollingBuffer(totals.get(v, h.box), h.slot, h.copied, h.fresh)
                    for v, h in s.holds.items()
                },
            )
            for s in found
        ]

    def own(self, value: str) -> Box:
        """What this core contributes to a result."""
        return self._cut(value, [])

    def _cut(self, value: str, index: Sequence[int]) -> Box:
        box = [(0, size) for size in self.results[value]]
        if value in self.rows:
            dim, rows = self.rows[value]
            box[dim] = rows
        for k, ((dim, count), at) in enumerate(
            zip((self.cores, *self.strips), (self.core, *index), strict=False)
        ):
            dim = self.dims.get(value, dim) if k == 0 else dim
            if dim < len(box):
                # the first strips are the largest: a search that looks at these alone sees what all need
                box[dim] = piece(box[dim], count, at, self._multiple(value, dim), largest_first=k > 0)
            elif at:
                return tuple((0, 0) for _ in box) or ((0, 0),)
        return tuple(box)

    def _multiple(self, value: str, dim: int) -> int:
        for member in self.members:
            if value in member.outputs:
                m = member.layer.space.outputs[0].maps
                axis = m[dim].axis if dim < len(m) else None
                return member.layer.space.axis(axis).multiple if axis is not None else 1
        return 1

    def _strips(self) -> Iterator[Stripe]:
        for index in product(*(range(n) for _, n in self.strips)):
            need = {v: box for v in self.results if elements(box := self._cut(v, index))}
            windows, fresh = self._windows(need)
            yield Stripe(windows, {v: self._hold(v, need[v], fresh.get(v)) for v in self.held if v in need})

    def _windows(self, need: dict[str, Box]) -> tuple[tuple[Tile | None, ...], dict[str, Box | None]]:
        """From the last part to the first: what is needed of its outputs, less what
        is there, is what it makes."""
        windows: list[Tile | None] = [None] * len(self.members)
        fresh: dict[str, Box | None] = {}
        for p in reversed(range(len(self.members))):
            member = self.members[p]
            wanted: Box | None = None
            for value in member.outputs:
                wanted = hull(wanted, need[value]) if value in need else wanted
            if wanted is None:
                continue
            if not member.can_split:
                tile: Tile = member.layer.space.full
                for value in member.outputs:
                    need[value] = fresh[value] = self._whole(member, value)
            else:
                wanted, new = member.rounded(wanted), None
                for value in member.outputs:
                    if value not in self.held and need.get(value) != wanted:
                        raise Uncuttable(value)
                    need[value] = wanted
                    more = self._fresh(value, wanted) if value in self.held else wanted
                    new = hull(new, more) if more is not None else new
                fresh.update(dict.fromkeys(member.outputs, new))
                if new is None:
                    continue
                tile = member.tile(new)
            windows[p] = tile
            for value, ref in member.inputs:
                box = ref.operand.box(tile)
                if elements(box):
                    need[value] = hull(need.get(value), box)
        made = {v for m in self.members for v in m.outputs}
        fresh.update({v: self._fresh(v, need[v]) for v in self.held if v in need and v not in made})
        return tuple(windows), fresh

    @staticmethod
    def _whole(member: Member, value: str) -> Box:
        shape = next(o.type.shape for s in member.sites for o in s.outputs if o.id == value)
        return tuple((0, d) for d in shape)

    def _fresh(self, value: str, box: Box) -> Box | None:
        state = self.state.get(value)
        return _beyond(state.box, box) if state is not None else box

    def _hold(self, value: str, box: Box, fresh: Box | None) -> RollingBuffer:
        state = self.state.get(value)
        if self.held[value] == 1:
            there = box if state is None else state.box
            if state is not None and fresh is not None:      # a box of all that is there, if that is a box
                both = hull(state.box, fresh)
                there = (
                    both if elements(both) <= elements(state.box) + elements(fresh) and fresh != box else box
                )
            self.state[value] = _State(there)
            return RollingBuffer(box, 0, None, fresh)
        if state is not None and fresh is None:
            return RollingBuffer(state.box, state.slot, None, None)
        copied = None
        if state is not None and fresh is not None and fresh != box:
            copied = tuple((a, f[0]) if f != b else b for b, f, (a, _) in zip(box, fresh, box, strict=True))
        copied = copied if copied is not None and elements(copied) else None
        # what parts hand on in one strip is read before the next: only rows that move on, and what a
        # load or a store meets, need a second slot
        stays = copied is None and value in self._inner
        slot = 0 if state is None else state.slot if stays else 1 - state.slot
        self.state[value] = _State(box, slot)
        return RollingBuffer(box, slot, copied, fresh)

    @cached_property
    def _inner(self) -> frozenset[str]:
        """Values that the group makes and nobody outside needs."""
        return frozenset(v for m in self.members for v in m.outputs) - self.results.keys()


def piece(
    interval: Interval, count: int, at: int, multiple: int, *, largest_first: bool = False
) -> Interval:
    """One of `count` nearly equal pieces, cut on multiples. `largest_first`: the first is as large as any."""
    lo, hi = interval
    units, up = -(-(hi - lo) // multiple), (count - 1) * largest_first
    a, b = (units * at + up) // count, (units * (at + 1) + up) // count
    return min(hi, lo + a * multiple), min(hi, lo + b * multiple)


def hull(a: Box | None, b: Box) -> Box:
    if a is None or a == b:
        return b
    return tuple([(p if p < r else r, q if q > s else s) for (p, q), (r, s) in zip(a, b, strict=True)])


def inside(inner: Box, outer: Box) -> bool:
    return all(c <= a and b <= d for (a, b), (c, d) in zip(inner, outer, strict=True))


def _beyond(there: Box, box: Box) -> Box | None:
    """What of a box is not there yet: None, the end of one dimension, or else all of it."""
    if inside(box, there):
        return None
    open_ = [i for i, ((a, b), (c, d)) in enumerate(zip(box, there, strict=True)) if a < c or d < b]
    if len(open_) != 1:
        return box
    (i,) = open_
    (a, b), (c, d) = box[i], there[i]
    if a < c or a > d:
        return box
    return (*box[:i], (d, b), *box[i + 1 :])


@dataclass(frozen=True)
class Border:
    """A box that one core has made and others miss."""

    value: str
    source: int
    targets: tuple[int, ...]
    box: Box

    @property
    def name(self) -> str:
        """Of its bytes in external memory."""
        return f"{self.value} from core {self.source}: " + ",".join(f"{a}-{b}" for a, b in self.box)


@dataclass(frozen=True)
class Spread:
    """A value in several local memories: the box that each core's buffer is laid out for, and the borders,
    which the group `maker` stores and the group `reader`, the first that misses any, loads."""

    boxes: tuple[Box | None, ...]
    borders: tuple[Border, ...]
    maker: int
    reader: int
