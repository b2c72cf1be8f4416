"""Plans whose tiles do not cut the rows of caches that a run attends to."""

from __future__ import annotations

from dataclasses import replace

from npuflow.schedule.frame import ValidPart
from npuflow.schedule.groups import FusedOp
from npuflow.search.plan import TilingPlan


def in_one_piece(plan: TilingPlan, part: ValidPart) -> TilingPlan:
    """The plan with all rows of the caches in one piece where a node streams nothing through local memory, so
    that pieces save no room there: they are more commands at some indices than at others."""
    return replace(plan, groups=tuple(
        replace(group, parts=tuple(_in_one_piece(one, part) for one in group.parts)) for group in plan.groups
    ))


def _in_one_piece(one: FusedOp, part: ValidPart) -> FusedOp:
    axis = part.axes.get(one.nodes[0])
    if axis is None or one.choice is None or any(one.choice.slots):
        return one
    sizes = tuple((name, part.rows if name == axis else size) for name, size in one.choice.sizes)
    return replace(one, choice=replace(one.choice, sizes=sizes))
