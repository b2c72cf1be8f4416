"""Results written over an input that dies: where every element is read, point by
point, just before it is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from npuflow.ir.space import DimMap
from npuflow.ir.views import Views
from npuflow.schedule.frame import Frame
from npuflow.schedule.geometry import Member
from npuflow.schedule.model import Ref


def in_place(
    frames: Sequence[Frame], views: Views, born: Mapping[str, int], dies: Mapping[str, int]
) -> dict[str, str]:
    """Results in external memory -> the value whose bytes they take over; a chain of them names its first."""
    sharing: dict[str, int] = {}
    for value in born:
        root = views.root(value)[0]
        sharing[root] = sharing.get(root, 0) + 1
    alone = {v for v in born if views.root(v) == (v, 0) and sharing[v] == 1}
    homes: dict[str, str] = {}
    for frame in frames:
        for p, member in enumerate(() if frame.moves else frame.members):
            if any(o in v for o in member.outputs for v in _read_elsewhere(frame, p)):
                # more than its own part of a result may be made: for the halo of the next
                continue
            taken: set[str] = set()
            for result, value in _pairs(frame, member):
                fits = (
                    {result, value} <= alone
                    and dies[value] == born[result]
                    and views.bytes(value) == views.bytes(result)
                )
                if (
                    fits
                    and result not in homes
                    and value not in taken
                    and not any(value in v for v in _read_elsewhere(frame, p))
                ):
                    taken.add(value)
                    homes[result] = homes.get(value, value)
    return homes


def _read_elsewhere(frame: Frame, part: int) -> Iterator[set[str]]:
    """What the other parts of the group read."""
    for p, member in enumerate(frame.members):
        if p != part:
            yield {i for n in member.nodes for i in frame.topology.graph.nodes[n].inputs}


def _pairs(frame: Frame, member: Member) -> Iterator[tuple[str, str]]:
    """(result that goes to external memory, input that comes from there tile by tile),
    of one shape, point on point."""
    refs = [r for s in member.layer.streams for r in s.refs]
    read = [r for r in refs if r.home == "input"]
    wanted = [r for r in (*refs, *member.layer.kept) if r.home in ("output", "result")]
    for out in wanted:
        value = member.value(out)
        if value not in frame.results or not frame.topology.wanted_in_data(value, frame.kept):
            continue
        for ref in read:
            source = member.value(ref)
            once = sum(member.value(r) == source for r in (*read, *member.layer.kept)) == 1
            if once and _points(ref, out) and not _cut_along_whole(frame, member, out):
                yield value, source


def _cut_along_whole(frame: Frame, member: Member, out: Ref) -> bool:
    """Whether cores or strips cut a result where tiles never are: each of them then reads more than the
    part that it writes, while the others write theirs."""
    space, maps = member.layer.space, out.operand.maps
    cuts = (frame.group.cores, *frame.group.strips)
    axes = (maps[dim].axis for dim, count in cuts if count > 1 and dim < len(maps))
    return any(axis is not None and space.axis(axis).kind != "par" for axis in axes)


def _points(ref: Ref, out: Ref) -> bool:
    """Whether an element of one stands for the same element of the other, whatever the tile."""
    plain = all(m.axis is not None and m == DimMap(m.axis) for m in out.operand.maps)
    same = ref.operand.shape == out.operand.shape and ref.operand.maps == out.operand.maps
    return plain and same and ref.itemsize == out.itemsize
