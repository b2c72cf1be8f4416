"""Concatenation in place: parts of a group write directly into their slice of the concatenated value.

A Concat in local memory copies each input to its slice. An input that the group computes, and that has the
same rows in local memory as the result, needs no buffer of its own: the part that computes it writes into
the result's buffer, and its readers read there. Nothing is copied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from npuflow.ir.op import OpContext
from npuflow.ir.space import Box, IterationDomain
from npuflow.schedule.geometry import Member, Stripe, inside


@dataclass(frozen=True)
class JoinedPart:
    """A value's place in the value that it is joined into: where it begins, by dimension. `over`: it is no
    part of that value, which nobody reads any more or nobody has made yet (`taken.py`)."""

    value: str
    at: tuple[int, ...]
    over: bool = False

    def box(self, box: Box) -> Box:
        """A box of the value as a box of the joined one."""
        return tuple([(a + at, b + at) for (a, b), at in zip(box, self.at, strict=True)])


Joins = Mapping[str, JoinedPart]          # by the value that lies in the buffer of another one


def places(joins: Joins, value: str) -> Iterator[JoinedPart]:
    """Where a value lies in what it is joined into, in what that is joined into, and so on."""
    at: tuple[int, ...] = ()
    while (link := joins.get(value)) is not None:
        value, at = link.value, tuple(a + b for a, b in zip(link.at, at or (0,) * len(link.at), strict=True))
        yield JoinedPart(value, at, link.over)


def whole_place(joins: Joins, value: str) -> JoinedPart | None:
    """Where a value lies in the one that owns the buffer; None where it has its own."""
    return next((p for p in places(joins, value) if p.value not in joins), None)


def shown_in(joins: Joins, value: str) -> Iterator[JoinedPart]:
    """Where a value lies in others that it is a part of."""
    return (place for place in places(joins, value) if not place.over)


def parts_of(site: OpContext, space: IterationDomain) -> list[tuple[str, JoinedPart, int]]:
    """The inputs of a node that joins values, the place of each, and the dimension along which they lie."""
    made, found, begin = space.outputs[0], list[tuple[str, JoinedPart, int]](), 0
    for value, operand in zip(site.inputs, space.inputs, strict=True):
        assert value is not None and operand is not None
        pairs = zip(operand.maps, made.maps, strict=True)
        along = next(d for d, (theirs, own) in enumerate(pairs) if theirs.axis != own.axis)
        at = tuple(begin if d == along else 0 for d in range(len(made.shape)))
        found.append((value.id, JoinedPart(site.outputs[0].id, at), along))
        begin += operand.shape[along]
    return found


def joined_values(
    members: Sequence[Member], strips: Sequence[Sequence[Stripe]], held: Mapping[str, int],
    kept: Collection[str],
) -> dict[str, JoinedPart]:
    """The values of a group that need no buffer of their own. `held`: as in the group; `kept`: resident
    tensors, each in its own buffer."""
    found: dict[str, JoinedPart] = {}
    made = {v for m in members for v in m.outputs}
    for site, space in ((m.sites[0], m.spaces[0]) for m in members if m.spaces[0].joins):
        types = {v.id: (v.element, v.quant) for v in (*site.inputs, *site.outputs) if v is not None}
        for value, part, along in parts_of(site, space):
            own = value in made and value in held and value not in kept and value not in found
            alike = part.value in held and types[value] == types[part.value]
            if own and alike and all(_together(value, part, along, s, held) for s in strips):
                found[value] = part
    return found


def _together(
    value: str, part: JoinedPart, along: int, strips: Sequence[Stripe], held: Mapping[str, int]
) -> bool:
    """Whether a core holds the same rows of both values, for the same time."""
    stay = held[value] == held[part.value] == 1 or len(strips) == 1
    for holds in (strip.holds for strip in strips if value in strip.holds):
        mine, whole = holds[value], holds.get(part.value)
        if whole is None or mine.copied is not None or not inside(part.box(mine.box), whole.box):
            return False
        if mine.fresh is None or whole.fresh is None:
            if mine.fresh is not whole.fresh or not stay:
                return False
            continue
        pairs = enumerate(zip(mine.fresh, whole.fresh, strict=True))
        if any(a != b for d, (a, b) in pairs if d != along) or not (stay or mine.fresh == mine.box):
            return False
    return True


def without_copies(member: Member, joins: Joins) -> Member:
    """A part that joins values, without the copies of those that are in their place."""
    space = member.spaces[0]
    if not space.joins or not any(v in joins for v, _ in member.inputs):
        return member
    there = _in_place(member, joins)
    inputs = tuple(None if k in there else o for k, o in enumerate(space.inputs))
    less = replace(space, inputs=inputs)
    return replace(member, spaces=(less, *member.spaces[1:]), layer=replace(member.layer, space=less))


def _in_place(member: Member, joins: Joins) -> set[int]:
    """Inputs that are in their place; of a value that is joined twice the first."""
    found, seen = set[int](), set[str]()
    for k, (value, part, _) in enumerate(parts_of(member.sites[0], member.spaces[0])):
        if joins.get(value) == part and value not in seen:
            found.add(k)
        seen.add(value)
    return found


def copies_nothing(space: IterationDomain) -> bool:
    """Whether all that a node joins is in its place."""
    return space.joins and not any(space.inputs)
