"""Jobs on queues in time: a recurrence over what each waits for, with the bytes in flight sharing a bus."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from npuflow.base.errors import InternalError
from npuflow.schedule.banks import NOTHING, Banks, Shares

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
