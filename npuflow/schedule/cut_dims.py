"""Which dimension of every value of a group its cores cut, by the dimension of its last result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npuflow.schedule.geometry import Member
from npuflow.schedule.groups import Cut


def cut_dims(members: Sequence[Member], results: Sequence[str], cut: Cut) -> Mapping[str, int]:
    """By value the dimension that runs along the same axis as the one of the last result that is cut. Rows of
    a matrix are dimension 0 before a Reshape to heads, 1 behind it, and 2 behind the Transpose. Values that
    no such axis leads to are not in it; nothing is where there is one core.

    From the result back to what it is made of, then on to what else is made of that. Where two axes lead to a
    value, as in a product of a value with itself, the way back from the result is taken.
    """
    if cut[1] == 1 or not results:
        return {}
    found = {results[-1]: cut[0]}
    for _ in range(2):
        for member in reversed(members):
            _back(member, found)
        for member in members:
            _on(member, found)
    return found


def _back(member: Member, found: dict[str, int]) -> None:
    """From a member's results to what it reads."""
    maps = member.layer.space.outputs[0].maps
    known = next((found[v] for v in member.outputs if v in found), len(maps))
    axis = maps[known].axis if known < len(maps) else None
    if axis is None:
        return
    for value in member.outputs:
        found.setdefault(value, known)
    for value, ref in member.inputs:
        along = [d for d, m in enumerate(ref.operand.maps) if m.axis == axis]
        if along:
            found.setdefault(value, along[0])


def _on(member: Member, found: dict[str, int]) -> None:
    """From what a member reads to its results."""
    maps = member.layer.space.outputs[0].maps
    for value, ref in member.inputs:
        d = found.get(value, len(ref.operand.maps))
        axis = ref.operand.maps[d].axis if d < len(ref.operand.maps) else None
        along = [k for k, m in enumerate(maps) if m.axis == axis and axis is not None]
        if along:
            for made in member.outputs:
                found.setdefault(made, along[0])
