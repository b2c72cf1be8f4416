"""When the jobs of a schedule run: what each waits for on its queue, on other
queues, on the bus and on banks.

The search ranks thousands of candidates by the sums of tiling.cost; the few best plans come through here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuflow.schedule.accesses import Latest, LocalAccesses
from npuflow.schedule.banks import NOTHING, Banks, Shares
from npuflow.schedule.jobs import Barrier, Job, Phase, Queues, Schedule
from npuflow.schedule.machine import Machine
from npuflow.schedule.stored import Stored
from npuflow.schedule.timetable import INSIDE, OUTSIDE, Timetable


@dataclass
class CycleBreakdown:
    """What a group adds up to on one core, in cycles, and the bytes that it moves outside the chip."""

    array: float = 0.0
    vector: float = 0.0
    set_up: float = 0.0
    bus: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True)
class ScheduleTime:
    """Cycles of the whole plan; per group its terms (of the core that spends most; the bus
    is one for all) and its end."""

    cycles: float
    terms: tuple[CycleBreakdown, ...]
    ends: tuple[float, ...]

    @property
    def spans(self) -> list[float]:
        """Cycles from the end of what came before to a group's own end, by the groups' order in the plan."""
        found, before = [], 0.0
        for end in self.ends:
            found.append(max(0.0, end - before))
            before = max(before, end)
        return found


def time_of(schedule: Schedule, machine: Machine) -> ScheduleTime:
    """Segment after segment; the host comes between."""
    clock, segment = _Clock(machine, schedule.groups), -1
    for phase in schedule.phases:
        if phase.segment != segment:
            clock.table.run()
            segment = phase.segment
        clock.add(phase)
    cycles = clock.table.run()
    ends = [0.0] * schedule.groups
    for group, end in zip(clock.groups, clock.table.end, strict=True):
        if end > ends[group]:
            ends[group] = end
    return ScheduleTime(cycles, tuple(map(_together, clock.terms)), tuple(ends))


def _together(cores: Sequence[CycleBreakdown]) -> CycleBreakdown:
    array, vector, set_up = (max(getattr(c, name) for c in cores) for name in ("array", "vector", "set_up"))
    return CycleBreakdown(array, vector, set_up, sum(c.bus for c in cores), sum(c.bytes for c in cores))


class _Core:
    """What one core has touched."""

    def __init__(self) -> None:
        self.local = LocalAccesses()
        self.stored: dict[str, Stored] = {}       # by owner of the bytes
        self.shared: dict[str, int] = {}          # owner of bytes -> the barrier behind which they are there
        self.loaded = -1                          # the last load of a value


class _Clock:
    """Adds jobs to the timetable, each behind what it depends on, and what they spend by group and core."""

    def __init__(self, machine: Machine, groups: int) -> None:
        memory, self.machine = machine.memory, machine
        self.queues, count = Queues(machine.dma.channels), machine.compute.cores
        widths = float(memory.external_bandwidth), float(memory.shared_bandwidth)
        self.table = Timetable(self.queues.count, count, widths, Banks(memory))
        self.cores = [_Core() for _ in range(count)]
        self.terms = [[CycleBreakdown() for _ in range(count)] for _ in range(groups)]
        self.groups: list[int] = []               # by entry of the timetable

    def add(self, phase: Phase) -> None:
        if phase.barrier is not None:
            self._meet(phase.barrier)
        first = len(self.groups)
        for job in phase.jobs:
            self._add(job)
        for together in phase.shared:
            self.table.join([first + n for n in together])
            for n in together[1:]:                # the bytes move once
                self._spend_bus(phase.jobs[n], -1)

    def _add(self, job: Job) -> None:
        core, queue, table, after = self.cores[job.core], job.queue, self.table, Latest()
        local, outside = core.local, job.outside
        for allocation, box in job.reads:
            local[allocation].before_read(box, after)
        for allocation, box in job.writes:
            local[allocation].before_write(box, after)
        if outside is not None and job.writes:
            last = core.stored[outside.owner].last(outside) if outside.owner in core.stored else -1
            last = max(last, core.shared.get(outside.owner, -1))
            if last > after.get(self.queues.stores, -1):
                after[self.queues.stores] = last
        after.pop(queue, None)
        bus = INSIDE if self._inside(job) else OUTSIDE
        shares = self._shares(job) if table.banks.ports else NOTHING
        whole = job.core * self.queues.count + queue
        number = table.add(whole, job.cycles, tuple(after.values()), job.bytes, bus, shares)
        self.groups.append(job.group)
        for allocation, box in job.reads:
            local[allocation].touch(box, queue, number, False)
        for allocation, box in job.writes:
            local[allocation].touch(box, queue, number, True)
        if outside is not None:
            if job.writes:
                core.loaded = number
            else:
                core.stored.setdefault(outside.owner, Stored()).add(outside, number)
        self._spend(job)

    def _shares(self, job: Job) -> Shares:
        return self.table.banks.shares(tuple([a.touched(box) for a, box in (*job.reads, *job.writes)]))

    def _inside(self, job: Job) -> bool:
        """Whether what it moves lies in the chip's shared memory."""
        return job.outside is not None and job.outside.span[1] <= self.machine.memory.shared_bytes

    def _spend(self, job: Job) -> None:
        terms = self.terms[job.group][job.core]
        if job.queue == self.queues.tensor:
            terms.array += job.cycles
        elif job.queue == self.queues.vector:
            terms.vector += job.cycles
        else:
            terms.set_up += job.cycles
            self._spend_bus(job, 1)

    def _spend_bus(self, job: Job, times: int) -> None:
        memory, terms = self.machine.memory, self.terms[job.group][job.core]
        inside = self._inside(job)
        terms.bus += times * job.bytes / (memory.shared_bandwidth if inside else memory.external_bandwidth)
        terms.bytes += 0 if inside else times * job.bytes

    def _meet(self, barrier: Barrier) -> None:
        """A barrier of all cores, in their queues of stores; what they stored before is seen behind it."""
        table, width, cycles = self.table, self.queues.count, self.machine.compute.command_cycles
        stores = [c * width + self.queues.stores for c in range(len(self.cores))]
        come = [
            table.add(queue, 0.0, [core.loaded] if core.loaded >= 0 else ())
            for queue, core in zip(stores, self.cores, strict=True)
        ]
        for c, core in enumerate(self.cores):
            self.terms[barrier.group][c].set_up += cycles
            job = table.add(stores[c], cycles, come)
            core.shared.update(dict.fromkeys(barrier.seen.values(), job))
        self.groups += [barrier.group] * 2 * len(self.cores)
