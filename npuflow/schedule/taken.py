"""Sums in place: a sum in local memory is written over the operand that nobody reads afterwards.

A residual block adds its input to what it has made of it. Where both lie in local memory, the sum would be a
third tensor there. But the sum is the last that reads the input, and each of its tiles needs the same tile of
the input alone: it is written there, and needs no buffer of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from npuflow.schedule.geometry import Member
from npuflow.schedule.joined import JoinedPart, Joins


def sums_over(member: Member) -> Iterator[tuple[str, str]]:
    """Sums of a part, each with an operand that it may be written over: of the same elements, which the
    vector unit reads once, and before the sum's tile is there."""
    if not any(site.op.sums for site in member.sites):
        return
    read = [value for value, _ in member.inputs]
    results = [r for r in member.layer.kept if r.home == "result"]
    for source in (r for r in member.layer.kept if r.home == "source"):
        value, k = member.value(source), source.member
        if not member.sites[k].op.sums or read.count(value) > 1:
            continue
        for made in results:
            alike = source.operand.maps == made.operand.maps and source.operand.shape == made.operand.shape
            # whoever comes behind the sum in the part works point by point, too
            if alike and source.bits == made.bits == 8 * made.itemsize and made.member >= k:
                yield member.value(made), value


def over_operands(
    members: Sequence[Member], joins: Joins, kept: Collection[str], gone: Callable[[str], bool]
) -> dict[str, JoinedPart]:
    """The values of a group of one strip that lie where others do: sums over their operands. Of values that
    lie in the same bytes one after the other, a resident one has the buffer, else the first. `joins`: values
    that are joined; `gone`: whether no group behind this one reads a value."""
    busy = {*joins, *(part.value for part in joins.values())}
    under: dict[str, str] = {}
    for p, member in enumerate(members):
        for made, value in sums_over(member):
            later = any(value == v for m in members[p + 1 :] for v, _ in m.inputs)
            alone = made not in under and value not in under.values() and busy.isdisjoint((made, value))
            if alone and not later and (value not in kept or gone(value)):
                under[made] = value
    found: dict[str, JoinedPart] = {}
    for chain in _chains(under):
        owner = next((v for v in chain if v in kept), chain[0])
        rank = next(len(r.operand.shape) for m in members for r in m.layer.kept if m.value(r) == chain[-1])
        found.update((v, JoinedPart(owner, (0,) * rank, over=True)) for v in chain if v != owner)
    return found


def _chains(under: dict[str, str]) -> Iterator[list[str]]:
    """Values that lie in the same bytes, in their order."""
    above = {value: made for made, value in under.items()}
    for first in (v for v in above if v not in under):
        chain = [first]
        while chain[-1] in above:
            chain.append(above[chain[-1]])
        yield chain
