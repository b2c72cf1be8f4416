"""Cycles of groups one after the other, when constants come in ahead of their group as
far as local memory has room."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.engine.schedule.choice import Costs


def makespan(groups: Sequence[Costs], room: float) -> float:
    """A recurrence over groups: loads run in order, behind what must leave local memory
    first; compute runs behind both.

    `room`: bytes of constants that may wait in local memory. What a group reads from external memory, other
    than constants, is there when the group before has stored it.
    """
    loaded = stored = 0.0
    done = [0.0]                               # when each group has computed
    for g, c in enumerate(groups):
        first, held = g, c.const
        while first and held + groups[first - 1].const <= room:
            first -= 1
            held += groups[first].const
        begin = max(loaded, done[first])
        fed = max(begin + c.early, max(stored, loaded) + c.head - c.early if c.head > c.early else 0.0)
        start = max(done[-1], fed)
        loaded = begin + c.load if c.head <= c.early else max(begin + c.load, fed - c.head + c.load)
        end = max(start + c.compute, loaded + min(c.tail, c.compute))
        stored = max(stored + c.store, end) if c.store else stored
        done.append(end)
    return max(done[-1], stored)
