"""Loops that several cores run at the same time: their groups, and the cycles of their rounds.

Cores do not meet between the first group of such loops and the last one. What one of them makes no other
reads, and no bytes of external memory are used twice meanwhile, so that nothing has to be waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from npuflow.schedule.allocate import Lifetime
from npuflow.schedule.frame import Frame
from npuflow.schedule.nested import RolledLoop, runs_of
from npuflow.schedule.time import ScheduleTime

Together = tuple[int, str]                # the segment of such loops, and what they share


def together(frame: Frame) -> Together | None:
    """Which loops the group is of that run at the same time."""
    node = frame.group.nodes[0]
    own = frame.topology.core.get(node)
    return None if own is None else (frame.topology.segment[node], own.together)


def cores_together(frames: Sequence[Frame]) -> Mapping[Together, frozenset[int]]:
    """The cores that run such loops."""
    found: dict[Together, frozenset[int]] = {}
    for frame in frames:
        if (own := together(frame)) is not None:
            found[own] = found.get(own, frozenset()) | frozenset(frame.cores)
    return found


def lasting(
    frames: Sequence[Frame], steps: Mapping[int, int], born: Mapping[str, int], dies: Mapping[str, int],
    borders: Sequence[Lifetime],
) -> tuple[dict[str, int], dict[str, int], list[Lifetime]]:
    """First and last uses of values in external memory, and lifetimes of borders, where cores run loops at
    the same time: what any of these uses is there from the beginning of the first loop to the end of the last
    one. `steps`: when nodes run."""
    spans: dict[Together, list[int]] = {}
    for frame in frames:
        if (own := together(frame)) is not None:
            spans.setdefault(own, []).append(steps[frame.group.nodes[0]])
    ends = [(min(every), max(every)) for every in spans.values()]

    def first(at: int) -> int:
        return next((low for low, high in ends if low <= at <= high), at)

    def last(at: int) -> int:
        return next((high for low, high in ends if low <= at <= high), at)

    return (
        {v: first(at) for v, at in born.items()}, {v: last(at) for v, at in dies.items()},
        [replace(life, first=first(life.first), last=last(life.last)) for life in borders],
    )


def cycles_of_rounds(time: ScheduleTime, loops: Sequence[RolledLoop], frames: Sequence[Frame]) -> float:
    """Cycles that rounds add which are not written out. Of loops that run at the same time those count that
    the last one ends later."""
    alone, ends = list[RolledLoop](), dict[Together, list[tuple[float, float]]]()
    for loop in loops:
        own = together(frames[loop.second[0]]) if loop.second else None
        if own is None:
            alone.append(loop)
            continue
        before, behind, last = (
            max(time.ends[g] for g in groups) for groups in (loop.first, loop.second, _all(loop))
        )
        ends.setdefault(own, []).append((last, last + loop.extra * (behind - before)))
    more = sum((runs - 1) * time.spans[g] for g, runs in runs_of(alone).items())
    return more + sum(max(e for _, e in own) - max(e for e, _ in own) for own in ends.values())


def _all(loop: RolledLoop) -> list[int]:
    return [g for groups in loop.groups for g in groups]
