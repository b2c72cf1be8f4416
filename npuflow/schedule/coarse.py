"""Coarse jobs in time: the search rates many candidates with few jobs each, the schedule of a finished plan
has them all.

What a job waits for is as in `timetable.py`: the one before it in its queue, and those that it names. Jobs
here need no banks and never share the bus, so that one pass in their order finds what the timetable finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

CoarseJob = tuple[int, float, Sequence[int]]     # its queue, its cycles, the jobs that it waits for


def ends_of(jobs: Iterable[CoarseJob], queues: int) -> list[float]:
    """When each job ends. None waits for a later one; bytes move in the cycles of one queue."""
    free, ends = [0.0] * queues, list[float]()
    for queue, cycles, after in jobs:
        begin = free[queue]
        for other in after:
            if ends[other] > begin:
                begin = ends[other]
        free[queue] = begin + cycles
        ends.append(free[queue])
    return ends
