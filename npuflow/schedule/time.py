"""Computes when the jobs of a schedule run: waits on queues, the bus and banks.

The search ranks thousands of candidates by the sums of tiling.cost; the few best plans come through here.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import InternalError
from npuflow.hw.target import Memory
from npuflow.ir.space import Box, Interval
from npuflow.schedule.accesses import Latest, LocalAccesses
from npuflow.schedule.banks import NOTHING, Banks, Shares
from npuflow.schedule.jobs import NO_BOX, Barrier, ConstantShare, Job, Outside, Phase, Queues, Schedule
from npuflow.schedule.machine import Machine
from npuflow.schedule.nested import RolledLoop
from npuflow.schedule.round_waits import wait_alike

ANY = (-(1 << 60), 1 << 60)
LOOKED = 256                              # stored boxes that are looked through at once, from the last on


class Stored:
    """Boxes of values that share bytes in external memory, in the order in which one queue stores them."""

    def __init__(self) -> None:
        self._boxes: list[tuple[str, Box, Interval]] = []
        self._jobs: list[int] = []
        # boxes taken over, and room for more
        self._known: dict[tuple[str, int], tuple[int, npt.NDArray[np.int64]]] = {}
        self._asked: dict[Outside, tuple[int, int]] = {}            # (boxes looked through, the last job)

    def add(self, outside: Outside, job: int) -> None:
        self._boxes.append((outside.value, outside.box, outside.span))
        self._jobs.append(job)

    def last(self, outside: Outside) -> int:
        """The last job that stored some of a box, or -1; of other values, and without a
        box, spans of bytes decide."""
        key = _, value, box, span = outside
        looked, job = self._asked.get(key, (0, -1))       # the same is loaded again and again
        if looked < len(self._jobs):
            job = max(job, self._since(looked, value, box, span))
            self._asked[key] = len(self._jobs), job
        return job

    def _since(self, first: int, value: str, box: Box, span: Interval) -> int:
        both, own = self._table(value, len(box)), np.array((span, *box), np.int64)
        for end in range(len(both), first, -LOOKED):
            part = both[max(first, end - LOOKED) : end]
            found = np.flatnonzero(((part[..., 0] < own[:, 1]) & (own[:, 0] < part[..., 1])).all(1))
            if len(found):
                return self._jobs[end - len(part) + int(found[-1])]
        return -1

    def _table(self, value: str, size: int) -> npt.NDArray[np.int64]:
        """Spans and boxes, of so many dimensions, of all that has been stored, as a value's own
        boxes are compared with it."""
        known, table = self._known.get((value, size), (0, np.empty((LOOKED, size + 1, 2), np.int64)))
        fresh = [
            (s, *(b if v == value and len(b) == size else (ANY,) * size)) for v, b, s in self._boxes[known:]
        ]
        count = known + len(fresh)
        while count > len(table):
            table = np.concatenate([table, np.empty_like(table)])
        if fresh:
            table[known:count] = np.array(fresh, np.int64).reshape(len(fresh), size + 1, 2)
        self._known[value, size] = count, table
        return table[:count]


# the bus to external memory, and the one to the chip's shared memory
OUTSIDE, INSIDE = 0, 1


@dataclass
class Timetable:
    """Jobs in the order in which their queues take them. `width`: queues of a core;
    `widths`: bytes a cycle of each bus."""

    width: int
    cores: int
    widths: tuple[float, float]
    banks: Banks
    cycles: list[float] = field(default_factory=list)
    bytes: list[float] = field(default_factory=list)
    bus: list[int] = field(default_factory=list)
    after: list[tuple[int, ...]] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)
    shares: list[Shares] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    # job -> all jobs that are one; the first carries it
    joint: dict[int, list[int]] = field(default_factory=dict)
    running: dict[int, int] = field(default_factory=dict)       # queue -> its job that needs banks
    # job -> when it began, and when its cycles end
    begun: dict[int, tuple[float, float]] = field(default_factory=dict)
    full: dict[int, float] = field(default_factory=dict)        # job -> bytes served on its bus when it ends
    done: int = 0                                        # jobs that earlier runs have ended
    now: float = 0.0

    def add(
        self, queue: int, cycles: float, after: Sequence[int] = (), amount: float = 0.0, bus: int = OUTSIDE,
        shares: Shares = NOTHING,
    ) -> int:
        """A job that takes so many cycles, then moves its bytes, once the jobs before it in
        its queue and `after` are done.
        `shares`: the bytes of local memory that it needs, by bank."""
        self.cycles.append(cycles)
        self.bytes.append(amount)
        self.bus.append(bus)
        self.after.append(tuple(after))
        self.queue.append(queue)
        self.shares.append(shares)
        self.end.append(-1.0)
        return len(self.cycles) - 1

    def join(self, jobs: Sequence[int]) -> None:
        """Jobs of several queues that start when all can, and end together: the bytes move once."""
        together = list(jobs)
        self.joint.update((job, together) for job in jobs)
        for job in jobs[1:]:
            self.bytes[job] = 0.0

    def run(self) -> float:
        """Until all jobs are done; the next ones begin behind them."""
        lines: list[list[int]] = [[] for _ in range(self.width * self.cores)]
        for job in range(len(self.cycles) - 1, self.done - 1, -1):
            lines[self.queue[job]].append(job)           # the next one last
        started: list[tuple[float, int]] = []            # (end of its cycles, job)
        moving: tuple[list[tuple[float, int]], ...] = ([], [])   # (bytes served when it ends, job), by bus
        # bytes that each transfer in flight has been served since the start
        served = [0.0, 0.0]
        waiting: dict[int, list[int]] = {}               # job -> queues that wait for it
        # the first of joint jobs -> how many of them could start
        come: dict[int, int] = {}
        ready = list(range(len(lines)))
        most, (wide, wide_inside), ended = self.banks.width, self.widths, self.end
        outside, inside = moving
        # by far the most of a replay's time: no calls that can be spared
        while True:
            for queue in sorted(ready) if len(ready) > 1 else ready:
                job = self._next(lines[queue], queue, waiting, come)
                if job >= 0:
                    heapq.heappush(started, (self._begin(job, served), job))
            rate = min(most, wide / max(1, len(outside)))
            rate_inside = min(most, wide_inside / max(1, len(inside)))
            end = self.now + (outside[0][0] - served[OUTSIDE]) / rate if outside else inf
            end_inside = self.now + (inside[0][0] - served[INSIDE]) / rate_inside if inside else inf
            bus, first_end = (OUTSIDE, end) if end <= end_inside else (INSIDE, end_inside)
            first = started[0][0] if started else inf
            moment = first if first < first_end else first_end
            if moment == inf:
                break
            served[OUTSIDE] += (moment - self.now) * rate
            served[INSIDE] += (moment - self.now) * rate_inside
            self.now = moment
            if first <= first_end:
                _, job = heapq.heappop(started)
                if self.bytes[job]:
                    self.full[job] = served[self.bus[job]] + self.bytes[job]
                    heapq.heappush(moving[self.bus[job]], (self.full[job], job))
                    ready = []
                    continue
            else:
                _, job = heapq.heappop(moving[bus])
            ready = []
            for own in self.joint.get(job, (job,)):
                ended[own] = moment
                queue = self.queue[own]
                self.running.pop(queue, None)
                lines[queue].pop()
                ready.append(queue)
                if own in waiting:
                    ready += waiting.pop(own)
        if any(lines):
            raise InternalError(
                f"jobs {[line[-1] for line in lines if line]} wait for each other", code="NF-INTERNAL-009",
            )
        self.done = len(self.cycles)
        self.full.clear()
        self.begun.clear()
        return self.now

    def _next(
        self, line: Sequence[int], queue: int, waiting: dict[int, list[int]], come: dict[int, int]
    ) -> int:
        """The job of a queue that starts now, or -1 where there is none, or it waits for others."""
        if not line:
            return -1
        job = line[-1]
        for other in self.after[job]:
            if self.end[other] < 0:
                waiting.setdefault(other, []).append(queue)
                return -1
        if job in self.joint:
            all_of, job = self.joint[job], self.joint[job][0]
            come[job] = come.get(job, 0) + 1
            if come[job] < len(all_of):
                return -1
        return job

    def _begin(self, job: int, served: Sequence[float]) -> float:
        """The end of its cycles, behind what it waits for banks; what is joint waits
        as long as the slowest of it."""
        if not self.banks.ports:
            return self.now + self.cycles[job]
        together: Sequence[int] = self.joint.get(job, (job,))
        due = self.now + max([self.cycles[own] + self._wait(own, served) for own in together])
        for own in together:
            self.running[self.queue[own]], self.begun[own] = own, (self.now, due)
        return due

    def _wait(self, job: int, served: Sequence[float]) -> float:
        own, first = self.shares[job], self.queue[job] // self.width * self.width
        others = []
        for queue, other in self.running.items() if own else ():
            shares = self.shares[other]
            if first <= queue < first + self.width and not own.keys().isdisjoint(shares):
                others.append((shares, self._rest(other, served)))
        return self.banks.wait(own, others) if others else 0.0

    def _rest(self, job: int, served: Sequence[float]) -> float:
        """The part of a running job that is still to come: of its bytes, where it moves some."""
        job = self.joint.get(job, [job])[0]
        if self.bytes[job]:
            return (self.full[job] - served[self.bus[job]]) / self.bytes[job] if job in self.full else 1.0
        begin, due = self.begun[job]
        return (due - self.now) / (due - begin) if due > begin else 0.0


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


def is_inside(job: Job, memory: Memory) -> bool:
    """Whether what it moves lies in the chip's shared memory."""
    return job.outside is not None and job.outside.span[1] <= memory.shared_bytes


def time_of(schedule: Schedule, machine: Machine, loops: Sequence[RolledLoop] = ()) -> ScheduleTime:
    """Segment after segment; the host comes between. Of `loops` the jobs of both rounds wait alike."""
    clock, segment = _Clock(machine, schedule.groups, schedule.whole), -1
    for phase in schedule.phases:
        if phase.segment != segment:
            clock.run(loops)
            segment = phase.segment
        clock.add(phase)
    cycles = clock.run(loops)
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

    def __init__(self, machine: Machine, groups: int, whole: Mapping[str, Interval]) -> None:
        memory, self.machine, self.whole = machine.memory, machine, whole
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

    def run(self, loops: Sequence[RolledLoop]) -> float:
        table = self.table
        if loops:
            wait_alike(table.after, table.queue, self.groups, loops, table.done, table.width)
        return table.run()

    def _add(self, job: Job) -> None:
        core, queue, table, after = self.cores[job.core], job.queue, self.table, Latest()
        local, outside = core.local, job.outside
        for allocation, box in job.reads:
            local[allocation].before_read(box, after)
        part = type(job.what) is ConstantShare
        for allocation, box in job.writes:
            if part:
                local[allocation].before_part(allocation.touched(box), box, after)
            else:
                local[allocation].before_write(box, after)
        if outside is not None and job.writes:
            span = self.whole.get(outside.value)
            read = outside if span is None else Outside(outside.owner, "", NO_BOX, span)
            last = core.stored[outside.owner].last(read) if outside.owner in core.stored else -1
            last = max(last, core.shared.get(outside.owner, -1))
            if last > after.get(self.queues.stores, -1):
                after[self.queues.stores] = last
        after.pop(queue, None)
        bus = INSIDE if is_inside(job, self.machine.memory) else OUTSIDE
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
        inside = is_inside(job, memory)
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
