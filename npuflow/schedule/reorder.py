"""Jobs of a phase in another order: each queue takes the first job that is ready (list scheduling).

In program order the array waits for the vector unit wherever a part needs the last rows of the one before,
though a branch beside it, or the next tile, could run. Here the jobs of every core are placed one after the
other, as a program runs: of those whose inputs and bytes are there, the one that can begin first; of several
the first in the program. What depends on each other keeps its order:

- in local memory, what `accesses.py` says, of all earlier jobs: a queue no longer has the program's order;
- loads of a core, since cores make loads together in this order, and stores;
- a store and the loads before it, which may read what it writes over in external memory; a load and the
  stores of its bytes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from npuflow.ir.space import Box
from npuflow.schedule.accesses import covers, meet
from npuflow.schedule.jobs import Allocation, ComputeTile, Job, Place, Queues, TileRun, What
from npuflow.schedule.machine import Machine
from npuflow.schedule.time import Stored, is_inside


def reordered(jobs: Sequence[Job], machine: Machine) -> list[Job]:
    """All jobs between two barriers, those of every core in its new order."""
    cores: dict[int, list[Job]] = {}
    for job in jobs:
        cores.setdefault(job.core, []).append(job)
    runs = [_Run(own, machine).placed() for own in cores.values()]
    return [job for _, _, job in heapq.merge(*runs, key=lambda placed: placed[:2])]


class _Touches:
    """All jobs that have touched an allocation, and those that must be done before it is written."""

    def __init__(self, before: set[int]) -> None:
        self.before = before
        self.writes: list[tuple[Box | None, int]] = []
        self.reads: list[tuple[Box | None, int]] = []

    def all(self) -> set[int]:
        """Jobs behind which other things may lie here. A write waits for those before it, a read does not."""
        touched = {job for _, job in (*self.writes, *self.reads)}
        return touched if self.writes else touched | self.before

    def writers(self, box: Box | None) -> Iterator[int]:
        return (job for other, job in self.writes if meet(other, box))

    def readers(self, box: Box | None) -> Iterator[int]:
        return (job for other, job in self.reads if meet(other, box))

    def write(self, box: Box | None, job: int) -> None:
        """It stands for all that it covers, for it waits for it."""
        self.writes = [w for w in self.writes if not covers(box, w[0])]
        self.reads = [r for r in self.reads if not covers(box, r[0])]
        self.writes.append((box, job))


class _LocalMemory(dict[Allocation, _Touches]):
    """Of one core; an allocation waits for all that touched what it replaces."""

    def __missing__(self, key: Allocation) -> _Touches:
        open_ = [key]
        while open_:
            top = open_[-1]
            if older := [a for a in top.replaces if a not in self]:
                open_ += older
                continue
            self[top] = _Touches(set[int]().union(*(self[a].all() for a in top.replaces)))
            open_.pop()
        return self[key]


def on_vector_unit(what: What, made: Mapping[TileRun, Sequence[Place]]) -> tuple[list[Place], list[Place]]:
    """What a job of the vector unit reads and writes and need not say, as its queue has the program's order:
    what earlier layers of its part have `made` of the tile, and slots of the tile for sums and results."""
    if type(what) is not ComputeTile:
        return [], []
    slots = zip(what.tile.run.units, what.tile.allocations, strict=True)
    own: list[Place] = [(a, None) for unit, a in slots if unit.home in ("acc", "inner", "output")]
    return list(made.get(what.tile, ())), own


def waits_of(jobs: Sequence[Job], vector: int) -> list[set[int]]:
    """For every job of a core the earlier ones that must be done before it begins. `vector`: the queue of the
    vector unit."""
    local, stored, found = _LocalMemory(), dict[str, Stored](), list[set[int]]()
    made: dict[TileRun, list[Place]] = {}
    for n, job in enumerate(jobs):
        waits, outside = set[int](), job.outside
        more = on_vector_unit(job.what, made) if job.queue == vector else ([], [])
        reads, writes = [*job.reads, *more[0]], [*job.writes, *more[1]]
        for allocation, box in reads:
            waits.update(local[allocation].writers(box))
        for allocation, box in writes:
            touches = local[allocation]
            waits.update(touches.before, touches.writers(box), touches.readers(box))
        if outside is not None and job.writes:
            last = stored[outside.owner].last(outside) if outside.owner in stored else -1
            waits.update((last,) if last >= 0 else ())
        elif outside is not None:
            stored.setdefault(outside.owner, Stored()).add(outside, n)
        for allocation, box in reads:
            local[allocation].reads.append((box, n))
        for allocation, box in writes:
            local[allocation].write(box, n)
        if type(job.what) is ComputeTile:
            made.setdefault(job.what.tile, []).extend(job.writes)
        waits.discard(n)
        found.append(waits)
    return found


class _Run:
    """The jobs of one core as its queues take them. Each finds the bus free: who shares it is known later."""

    def __init__(self, jobs: Sequence[Job], machine: Machine) -> None:
        self.jobs, self.memory = jobs, machine.memory
        self.left = [0] * len(jobs)               # jobs that each still waits for
        self.after: list[list[int]] = [[] for _ in jobs]      # who waits for a job's end ...
        self.behind: list[list[int]] = [[] for _ in jobs]     # ... and who until it begins
        queues = Queues(machine.dma.channels)
        for n, waits in enumerate(waits_of(jobs, queues.vector)):
            for other in waits:
                self._wait(self.after, other, n)
        load = value = store = -1                 # the last of all loads, of loads of values, of stores
        for n, job in enumerate(jobs):
            if job.queue == queues.stores:
                before, store = {store, value}, n
            elif job.queue < queues.stores:
                before, load = {load}, n
                value = value if job.outside is None else n
            else:
                before = set()
            for other in before - {-1}:
                self._wait(self.behind, other, n)
        self.ready = [0.0] * len(jobs)
        count = queues.count
        self.coming: list[list[tuple[float, int]]] = [[] for _ in range(count)]   # by when they are ready
        self.there: list[list[int]] = [[] for _ in range(count)]                  # ready; the first in front
        self.free = [0.0] * count

    def _wait(self, whom: list[list[int]], other: int, job: int) -> None:
        whom[other].append(job)
        self.left[job] += 1

    def placed(self) -> list[tuple[float, int, Job]]:
        """When each job begins, about; with its number in the program."""
        found = []
        for n, left in enumerate(self.left):
            if not left:
                self._open(n)
        for _ in self.jobs:
            begin, n = min(filter(None, map(self._first, range(len(self.free)))))
            queue = self.jobs[n].queue
            if self.there[queue]:
                heapq.heappop(self.there[queue])
            else:
                heapq.heappop(self.coming[queue])
            end = begin + self._cycles(self.jobs[n])
            self.free[queue] = end
            found.append((begin, n, self.jobs[n]))
            self._done(self.behind[n], begin)
            self._done(self.after[n], end)
        return found

    def _first(self, queue: int) -> tuple[float, int] | None:
        """When the queue's next job begins, and which."""
        coming, there, free = self.coming[queue], self.there[queue], self.free[queue]
        while coming and coming[0][0] <= free:
            heapq.heappush(there, heapq.heappop(coming)[1])
        if there:
            return free, there[0]
        return coming[0] if coming else None

    def _done(self, waiting: Sequence[int], now: float) -> None:
        for n in waiting:
            self.left[n] -= 1
            self.ready[n] = max(self.ready[n], now)
            if not self.left[n]:
                self._open(n)

    def _open(self, n: int) -> None:
        heapq.heappush(self.coming[self.jobs[n].queue], (self.ready[n], n))

    def _cycles(self, job: Job) -> float:
        memory = self.memory
        width = memory.shared_bandwidth if is_inside(job, memory) else memory.external_bandwidth
        return job.cycles + (job.bytes / width if job.bytes else 0.0)
