"""Executes tasks: inline while a build is short, then on Dask clusters that it starts or joins."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from npuflow.base.errors import NpuflowError, UsageError
from npuflow.base.processors import PROCESSORS
from npuflow.flow.memory import machine, size
from npuflow.flow.run_step import Outcome, Task, execute

if TYPE_CHECKING:
    from npuflow.flow.executor_cluster import Cluster
    from npuflow.flow.plan import Plan
    from npuflow.flow.store import Store

Arrival = tuple[Task, Outcome]
Opened = Callable[[str, str | None], None]
"""Called with a description of a cluster that has started and the address of its dashboard."""

BRIEF = 0.5  # seconds of inline work after which a build starts a cluster
TOGETHER = 0.005  # seconds of inline work whose outcomes are handed over together
LONG = 0.25  # mean seconds of the processor in a task from which another process is worth its messages
WORTH = 5.0  # seconds of such tasks after which a step with more of them gets processes
HELD = 16  # tasks that are held for each slot while everything runs inline
_HINT = "threads, processes, processes:N, or the address of a scheduler such as tcp://host:8786"


def one_thread_each() -> None:
    """Keep BLAS and its like to one thread a process: more would change sums, and fight the other steps."""
    if "numpy" in sys.modules:
        return
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        os.environ[name] = "1"


class TaskExecutor:
    """Takes tasks, and gives each back with its outcome in `arrivals`.

    `scheduler` says where they run:

    - `threads`: inline, one after another, until this has taken `BRIEF` seconds; then a cluster of one worker
      with `jobs` threads in this process. Steps of pure Python that prove long go to a second cluster of
      `jobs` processes. With one job everything is inline.
    - `processes` or `processes:N`: a cluster of so many processes.
    - an address: the cluster there.

    Nothing is started, joined or imported before the first task.
    """

    def __init__(
        self,
        scheduler: str,
        jobs: int,
        plan: Plan,
        store: Store,
        memory: str | None = None,
        dashboard: bool | None = None,
        opened: Opened | None = None,
    ) -> None:
        kind, colon, number = scheduler.partition(":")
        local = scheduler == "threads"
        counted = kind == "processes" and (not colon or (number.isdecimal() and int(number) > 0))
        if not local and "://" not in scheduler and not counted:
            host = bool(colon) and number.isdecimal() and kind not in ("processes", "threads")
            hint = f"tcp://{scheduler} for a scheduler there; or {_HINT}" if host else _HINT
            raise UsageError(f'there is no scheduler "{scheduler}"', hint=hint, code="NF-USAGE-058")
        self.arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self.jobs = int(number) if kind == "processes" and number else jobs
        self._chosen = None if local else kind if kind == "processes" else scheduler
        PROCESSORS.count = self.jobs if local else 1
        self._plan, self._store, self._dashboard = plan, store, dashboard
        self._opened = opened or (lambda _label, _dashboard: None)
        self._asked = size(memory) if memory else None
        self.memory = self._asked or machine()
        """Bytes that tasks which run at once may claim together."""
        self.largest = machine()
        """Bytes that one of them can have at most."""
        self._inline = Inline(self.arrivals, self._due)
        self._clusters: dict[str, Cluster] = {}
        self._opening: set[str] = set()
        self._held: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        """Step -> the mean of what its last tasks took."""
        self._spent: dict[str, float] = defaultdict(float)
        self._lock = threading.RLock()
        self._closed = False

    def start(self) -> None:
        """Something will run: start or join the cluster that was asked for by name."""
        if self._chosen is not None and not self._clusters:
            cluster = self._clusters[self._chosen] = self._cluster(self._chosen)
            self.memory, self.largest = cluster.memory, cluster.largest
            self._opened(cluster.label, cluster.dashboard)

    @property
    def slots(self) -> int:
        """Tasks that run at once."""
        return self._clusters[self._chosen].slots if self._chosen in self._clusters else self.jobs

    @property
    def window(self) -> int:
        """Tasks worth holding at once."""
        return sum(one.window for one in list(self._clusters.values())) or HELD * self.jobs

    def submit(self, tasks: Sequence[Task]) -> None:
        """Hand out tasks. One that is alone runs inline: nothing could run beside it."""
        with self._lock:
            alone = len(tasks) == 1 and not self._held.total()
            self._held.update(task.step for task in tasks)
            if self._chosen is not None:
                self._clusters[self._chosen].submit(tasks)
            elif alone or "threads" not in self._clusters:
                self._inline.submit(tasks)
            else:
                self._route(tasks)

    def go_on(self) -> None:
        """The driver has dealt with what arrived: what a cluster held back until then may run."""
        for cluster in list(self._clusters.values()):
            cluster.go_on()

    def _route(self, tasks: Sequence[Task]) -> None:
        """To threads; to processes what holds the interpreter lock for long."""
        places: dict[str, list[Task]] = {}
        for task in tasks:
            kind = "processes" if "processes" in self._clusters and self._long(task) else "threads"
            places.setdefault(kind, []).append(task)
        for kind, some in places.items():
            self._clusters[kind].submit(some)

    def _long(self, task: Task) -> bool:
        return task.stage.cpu == "python" and self._seconds.get(task.step, 0.0) > LONG

    def learn(self, task: Task, outcome: Outcome) -> None:
        """Note how long the tasks of a step take; the driver reports every arrival."""
        busy = outcome.busy
        with self._lock:
            self._held[task.step] -= 1
            self._seconds[task.step] = (self._seconds.get(task.step, busy) + busy) / 2
            self._spent[task.step] += busy
        for cluster in list(self._clusters.values()):
            cluster.learn(task, outcome)
        more = "threads" in self._clusters and self._held[task.step] > 1
        if more and self._long(task) and self._spent[task.step] > WORTH:
            self._open("processes")

    def _due(self) -> None:
        """Inline work has become long."""
        if self._chosen is None and self.jobs > 1:
            self._open("threads")

    def _open(self, kind: str) -> None:
        """Start a cluster beside what runs."""
        with self._lock:
            if self._closed or kind in self._opening:
                return
            self._opening.add(kind)
        threading.Thread(target=self._start, args=(kind,), name="npuflow-start", daemon=True).start()

    def _start(self, kind: str) -> None:
        try:
            # by far the longest part of a start: the build may end meanwhile
            import distributed  # noqa: F401

            if self._closed:
                return
            cluster = self._cluster(kind)
        except Exception as fault:
            if self._closed:  # the interpreter may be going down around it
                return
            if not isinstance(fault, NpuflowError):
                raise
            self._store.warn(f"{fault.message}: the build goes on without more {kind}")
            return
        with self._lock:
            late = self._closed
            if not late:
                self._clusters[kind] = cluster
                if kind == "threads":
                    cluster.occupy(self._inline.ended)
                    self._route(self._inline.drop())
        if late:
            cluster.close(wait=True)
        else:
            self._opened(cluster.label, cluster.dashboard)

    def _cluster(self, kind: str) -> Cluster:
        from npuflow.flow.executor_cluster import Cluster

        return Cluster(
            kind,
            self.jobs,
            self._plan,
            self._store,
            self.arrivals,
            memory=self._asked,
            dashboard=kind != "threads" if self._dashboard is None else self._dashboard,
        )

    def drop(self) -> list[Task]:
        """Take back what has not begun."""
        with self._lock:
            back = self._inline.drop()
            for cluster in self._clusters.values():
                back += cluster.drop()
            self._held.subtract(task.step for task in back)
        return back

    def close(self, *, wait: bool) -> None:
        """Let go of everything that was started; with `wait`, nothing runs any more afterwards."""
        with self._lock:
            self._closed = True
            clusters, self._clusters = list(self._clusters.values())[::-1], {}
        self._inline.close(wait=wait)
        for cluster in clusters:
            cluster.close(wait=wait)


class Inline:
    """Runs tasks one after another in this process, beside the driver: an interrupt waits for none."""

    def __init__(self, arrivals: queue.SimpleQueue[Arrival], due: Callable[[], None]) -> None:
        self._arrivals, self._due = arrivals, due
        self._waiting: deque[Task] = deque()
        self._lock = threading.Lock()
        self._runs = False
        self._spent = 0.0
        self.ended = threading.Event()
        """Set while nothing runs inline."""
        self.ended.set()

    def submit(self, tasks: Sequence[Task]) -> None:
        """Run tasks after those that wait already."""
        with self._lock:
            self._waiting.extend(tasks)
            if not self._runs and self._waiting:
                self._runs = True
                self.ended.clear()
                threading.Thread(target=self._run, name="npuflow-inline", daemon=True).start()

    def _run(self) -> None:
        begun = time.perf_counter()
        alarm = threading.Timer(max(0.0, BRIEF - self._spent), self._due)
        alarm.daemon = True
        alarm.start()
        ready: list[Arrival] = []
        given = begun
        while True:
            with self._lock:
                task = self._waiting.popleft() if self._waiting else None
                if task is None:
                    self._runs = False
                    self.ended.set()
                    self._spent += time.perf_counter() - begun
            if task is not None:
                try:
                    outcome = execute(task)
                except Exception as fault:  # the thread must not end: the driver waits for it
                    outcome = Outcome(error=fault)
                ready.append((task, outcome))
            # to wake the driver for every short task would take longer than the task
            if task is None or time.perf_counter() - given > TOGETHER:
                for arrival in ready:
                    self._arrivals.put(arrival)
                ready, given = [], time.perf_counter()
            if task is None:
                alarm.cancel()
                return

    def drop(self) -> list[Task]:
        """Take back what has not begun."""
        with self._lock:
            back = list(self._waiting)
            self._waiting.clear()
        return back

    def close(self, *, wait: bool) -> None:
        """Begin nothing more; with `wait`, nothing runs inline any more afterwards."""
        self.drop()
        if wait:
            self.ended.wait()
