"""Orders jobs by when they can run: an engine takes the first tile that is ready, of whatever layer.

A plan is laid out part by part. Taken in that order, the vector unit waits until a layer of the array is
done, and the array waits while a pool or a softmax runs. Here the jobs run in time once, and array and
vector unit take the first part whose next tile waits for nothing; tiles of one part keep their order, as
loads and stores do. A job waits for all that touched the same bytes before it in the plan, so that every
value is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from npuflow.schedule import tuned
from npuflow.schedule.jobs import ComputeTile, GatherColumns, Job, Phase, Schedule
from npuflow.schedule.machine import Machine
from npuflow.schedule.time import ScheduleClock, Timetable

OfTile = ComputeTile | GatherColumns
FIXED = -1                                # the part of jobs that run in the order of their queue


def by_readiness(schedule: Schedule, machine: Machine, most: float = inf) -> Schedule | None:
    """The same jobs, each engine's in the order in which they can run; None where that takes `most` cycles or
    more, as far as can be seen before."""
    clock, segment = _OpenClock(machine, schedule.groups), -1
    for phase in schedule.phases:
        if phase.segment != segment:
            clock.table.run()
            segment = phase.segment
        clock.add(phase)
    if clock.table.run() >= most:
        return None
    rank = {job: at for at, job in enumerate(clock.open.begins)}
    phases = [
        _in_turn(phase, [rank[first + n] for n in range(len(phase.jobs))])
        for phase, first in zip(schedule.phases, clock.firsts, strict=True)
    ]
    return replace(schedule, phases=phases)


def _in_turn(phase: Phase, ranks: Sequence[int]) -> Phase:
    """A phase with its jobs in the order of their ranks."""
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    place = {old: new for new, old in enumerate(order)}
    shared = sorted(sorted(place[n] for n in together) for together in phase.shared)
    return replace(phase, jobs=[phase.jobs[n] for n in order], shared=shared)


@dataclass
class _OpenTimetable(Timetable):
    """A timetable whose engines take what is ready. `parts`: by job the phase and the part of an engine, or
    `FIXED`; `behind`: a store -> the load that has to begin before it."""

    parts: list[tuple[int, int]] = field(default_factory=list)
    behind: dict[int, int] = field(default_factory=dict)
    begins: list[int] = field(default_factory=list)             # jobs in the order in which they began
    now_in: dict[int, int] = field(default_factory=dict)        # queue -> the job that began last
    seen: set[int] = field(default_factory=set)                 # those that began

    def _next(
        self, line: Sequence[int], queue: int, waiting: dict[int, list[int]], come: dict[int, int]
    ) -> int:
        if not line or (queue in self.now_in and self.end[self.now_in[queue]] < 0):
            return -1
        head = line[-1]
        phase, part = self.parts[head]
        if part == FIXED:
            before = self.behind.get(head, -1)
            if before >= 0 and before not in self.seen:
                waiting.setdefault(before, []).append(queue)
                return -1
            return super()._next(line, queue, waiting, come)
        assert isinstance(line, list)
        tried: dict[int, int] = {}                       # part -> what its next job waits for
        for at in range(len(line) - 1, max(-1, len(line) - 1 - tuned.READY_LOOK), -1):
            job = line[at]
            other, part = self.parts[job]
            if other != phase or len(tried) == tuned.READY_PARTS:
                break
            if part in tried:
                continue
            late = next((o for o in self.after[job] if self.end[o] < 0), -1)
            if late < 0:
                if job != head:
                    del line[at]
                    line.append(job)
                return job
            tried[part] = late
        for job in tried.values():
            others = waiting.setdefault(job, [])
            if queue not in others:                      # it may wait for the same job since long
                others.append(queue)
        return -1

    def _begin(self, job: int, served: Sequence[float]) -> float:
        for own in self.joint.get(job, (job,)):
            self.begins.append(own)
            self.seen.add(own)
            self.now_in[self.queue[own]] = own
        return super()._begin(job, served)


class _OpenClock(ScheduleClock):
    """Adds jobs behind all that touched their bytes, on whatever engine."""

    def __init__(self, machine: Machine, groups: int) -> None:
        super().__init__(machine, groups)
        old = self.table
        self.table = self.open = _OpenTimetable(old.width, old.cores, old.widths, old.banks)
        self.firsts: list[int] = []
        self.lines: dict[tuple[int, int, int], int] = {}

    def add(self, phase: Phase) -> None:
        super().add(phase)
        self.firsts.append(len(self.groups) - len(phase.jobs))
        table, first, number = self.open, self.firsts[-1], len(self.firsts)
        table.parts += [(number, FIXED)] * (first - len(table.parts))
        loaded: dict[int, int] = {}
        for n, job in enumerate(phase.jobs, first):
            engine = job.queue >= self.queues.tensor
            table.parts.append((number, self._line(job) if engine else FIXED))
            if job.outside is not None and job.writes:
                loaded[job.core] = n
            elif job.outside is not None and job.core in loaded:
                table.behind[n] = loaded[job.core]

    def _line(self, job: Job) -> int:
        if job.queue < self.queues.tensor:
            return job.queue
        part = job.what.tile.run.member.nodes[0] if isinstance(job.what, OfTile) else job.node
        key = job.queue, job.group, part
        return self.lines.setdefault(key, self.queues.count + len(self.lines))
