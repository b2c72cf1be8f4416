"""Keeps constants in local memory that several parts share, and loads them once.
Steps of a recurrent layer are such parts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from npuflow.ir.op import OpContext
from npuflow.schedule.allocate import Lifetime, aligned
from npuflow.schedule.frame import Frame
from npuflow.schedule.geometry import Member
from npuflow.schedule.groups import FusionGroup
from npuflow.schedule.units import SlotUnit

Name = tuple[int, int, int]               # group, part, unit
USES = 8                                  # of one content: fewer are not worth the room that it takes


@dataclass(frozen=True)
class Staying:
    """Slots of one content: the units that share them, from their first moment to their last."""

    name: str
    units: tuple[Name, ...]
    size: int
    slots: int
    first: int
    last: int

    @property
    def lives(self) -> Iterator[Lifetime]:
        for k in range(self.slots):
            yield Lifetime(f"{self.name}/{k}", max(1, self.size), self.first, self.last)

    @property
    def saved(self) -> int:
        """Bytes that need not be loaded."""
        return self.size * self.slots * (len(self.units) - 1)


def candidates(
    frames: Sequence[Frame], moments: Sequence[Sequence[int]], least: int = 0, uneven: bool = False
) -> list[Staying]:
    """Units of constants with one content, whose slots hold all of it, in one segment. `moments`: by group,
    when each part runs; `least`: uses of a content from which it may stay; 0: the usual
    ones. `uneven`: tiles of layers with one content differ in other axes than those of constants, as they do
    where the last chunk of a loop is shorter."""
    found: dict[Hashable, list[tuple[Name, SlotUnit, int]]] = {}
    for g, frame in enumerate(frames):
        if frame.moves:
            continue
        segment = frame.topology.segment[frame.group.nodes[0]]
        for p, (units, member) in enumerate(zip(frame.units, frame.members, strict=True)):
            for u, unit in enumerate(units):
                if holds_all(frame.group, p, member, unit):
                    choice = frame.group.parts[p].choice
                    assert choice is not None
                    axes = frozenset().union(*(r.axes for r in unit.refs))
                    sizes, order = choice.sizes, choice.order
                    if uneven:
                        sizes = tuple((axis, size) for axis, size in sizes if axis in axes)
                        order = tuple(axis for axis in order if axis in axes)
                    cut = (sizes, order) if axes else ()
                    key = segment, unit, _content(member, unit), cut
                    found.setdefault(key, []).append(((g, p, u), unit, moments[g][p]))
    made = []
    for n, uses in enumerate(uses for uses in found.values() if len(uses) >= (least or USES)):
        unit, at = uses[0][1], [moment for _, _, moment in uses]
        names = tuple(name for name, _, _ in uses)
        made.append(Staying(f"const.{n}", names, unit.size, unit.slots, min(at), max(at)))
    return made


def chosen(found: Sequence[Staying], lives: Sequence[Lifetime], limit: int, align: int) -> list[Staying]:
    """Those that there is room for beside the other lives, the ones that save most first."""
    end = max((v.last for v in lives), default=0) + 1
    use = [0] * end
    for v in lives:
        for t in range(v.first, v.last + 1):
            use[t] += aligned(v.size, align)
    kept = []
    for one in sorted(found, key=lambda one: (-one.saved, one.name)):
        size = aligned(one.size, align) * one.slots
        named = frozenset(_names(one))
        own = {life.first for life in lives if life.name in named}
        more = [use[t] + (0 if t in own else size) for t in range(one.first, one.last + 1)]
        if max(more) <= limit:
            use[one.first : one.last + 1] = more
            kept.append(one)
    return kept


def with_staying(
    lives: Sequence[Lifetime], movable: Mapping[str, int], staying: Sequence[Staying]
) -> tuple[list[Lifetime], dict[str, int]]:
    """Lives and movable constants, those that stay in the place of their units'."""
    gone = {name for one in staying for name in _names(one)}
    rest = [v for v in lives if v.name not in gone]
    return [*rest, *(life for one in staying for life in one.lives)], {
        name: first for name, first in movable.items() if name not in gone
    }


def _names(one: Staying) -> list[str]:
    return [f"{g}.{p}.{u}/{k}" for g, p, u in one.units for k in range(one.slots)]


def holds_all(group: FusionGroup, p: int, member: Member, unit: SlotUnit) -> bool:
    """Whether the slots of a unit are of constants, and hold all of them."""
    return unit.home == "const" and unit.slots == _tiles(group, p, member, unit)


def _tiles(group: FusionGroup, p: int, member: Member, unit: SlotUnit) -> int:
    """Blocks that the unit has over all tiles of its part."""
    choice = group.parts[p].choice
    assert choice is not None
    sizes, axes = dict(choice.sizes), frozenset().union(*(r.axes for r in unit.refs))
    return prod(-(-a.size // sizes[a.name]) for a in member.layer.axes if a.name in axes)


def _content(member: Member, unit: SlotUnit) -> Hashable:
    return tuple(_digest(member.sites[r.member], r.key) for r in unit.refs)


def _digest(site: OpContext, key: int | str) -> Hashable:
    if isinstance(key, str):
        return dict(site.node.params or ())[key]
    value = site.inputs[key]
    assert value is not None
    return value.const
