"""Executes tasks on this machine: waves of threads, and processes for steps of pure Python."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.pool import ThreadPool
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from npuflow.flow.interrupt import blocked
from npuflow.flow.memory import machine
from npuflow.flow.run_deaths import ended
from npuflow.flow.run_step import Outcome, Task, execute

Arrival = tuple[Task, Outcome]


class Executor(Protocol):
    """Takes tasks, and gives each back with its outcome in `arrivals`."""

    arrivals: queue.SimpleQueue[Arrival]
    window: int
    """Tasks worth holding at once."""
    slots: int
    """Tasks that run at once."""
    label: str
    dashboard: str | None
    memory: int
    """Bytes that tasks which run at once may claim together."""
    largest: int
    """Bytes that one of them can have at most."""

    def submit(self, tasks: Sequence[Task]) -> None: ...

    def learn(self, task: Task, outcome: Outcome) -> None:
        """Told of every arrival, by the driver."""

    def drop(self) -> list[Task]:
        """Take back what has not begun."""

    def close(self, *, wait: bool) -> None: ...


def one_thread_each() -> None:
    """Keep BLAS and its like to one thread a process: more would change sums, and fight the other steps."""
    if "numpy" in sys.modules:
        return
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        os.environ[name] = "1"


SHORT = 0.005  # mean seconds of a task below which several go to a thread at once
TOGETHER = 16


class Threads:
    """Waves of `dask.threaded.get` over one pool of threads."""

    dashboard: str | None = None

    def __init__(self, jobs: int, arrivals: queue.SimpleQueue[Arrival] | None = None) -> None:
        self.arrivals = arrivals if arrivals is not None else queue.SimpleQueue()
        self.window, self.slots = 256, jobs
        self.label = f"{jobs} thread{'s' if jobs > 1 else ''}"
        self.memory = self.largest = machine()
        self._jobs = jobs
        self._held: dict[str, Task] = {}
        self._lock = threading.Lock()
        self._pool: ThreadPool | None = None
        self._waves: list[threading.Thread] = []
        self._times: dict[str, float] = {}

    def submit(self, tasks: Sequence[Task]) -> None:
        if self._pool is None:
            # its threads are daemons: a second Ctrl-C need not wait for them
            self._pool = ThreadPool(self._jobs)
        with self._lock:
            self._held.update((task.name, task) for task in tasks)
        wave = threading.Thread(target=self._wave, args=(list(tasks),), name="npuflow-wave", daemon=True)
        self._waves = [one for one in self._waves if one.is_alive()] + [wave]
        wave.start()

    def _wave(self, tasks: list[Task]) -> None:
        from dask.threaded import get

        long = [task for task in tasks if self._times.get(task.step, SHORT) >= SHORT]
        rest = [task for task in tasks if self._times.get(task.step, SHORT) < SHORT]
        size = max(1, min(TOGETHER, len(rest) // (2 * self._jobs)))
        groups = [[task] for task in long] + [rest[i : i + size] for i in range(0, len(rest), size)]
        graph: dict[str, Any] = {group[0].name: (_Call(self, group),) for group in groups}
        get(graph, list(graph), pool=self._pool, num_workers=self._jobs)

    def settle(self, tasks: Sequence[Task]) -> None:
        """Execute tasks, but for those that have been taken back."""
        ready: list[Arrival] = []
        due = time.perf_counter() + SHORT
        for task in tasks:
            with self._lock:
                held = self._held.pop(task.name, None)
            if held is not None:
                ready.append((task, execute(task)))
            # to wake the driver for every short step would cost more than the steps
            if time.perf_counter() > due:
                ready, due = self._give(ready), time.perf_counter() + SHORT
        self._give(ready)

    def _give(self, ready: list[Arrival]) -> list[Arrival]:
        for arrival in ready:
            self.arrivals.put(arrival)
        return []

    def learn(self, task: Task, outcome: Outcome) -> None:
        """The last times of a stage say whether its tasks are worth a thread's turn each."""
        spent = sum(done.seconds for done in outcome.done)
        self._times[task.step] = (self._times.get(task.step, spent) + spent) / 2

    def drop(self) -> list[Task]:
        with self._lock:
            held, self._held = self._held, {}
        return list(held.values())

    def close(self, *, wait: bool) -> None:
        self.drop()
        for wave in self._waves:
            wave.join(None if wait else 2.0)
        if self._pool is not None and wait:
            self._pool.close()
            self._pool.join()


class _Call:
    """Tasks as dask runs them; an object of its own, because dask looks into tuples and lists for keys."""

    __slots__ = ("owner", "tasks")

    def __init__(self, owner: Threads, tasks: Sequence[Task]) -> None:
        self.owner, self.tasks = owner, tasks

    def __call__(self) -> None:
        self.owner.settle(self.tasks)


class Processes:
    """A pool of processes for steps that hold the interpreter lock."""

    dashboard: str | None = None

    def __init__(self, jobs: int, arrivals: queue.SimpleQueue[Arrival] | None = None) -> None:
        self.arrivals = arrivals if arrivals is not None else queue.SimpleQueue()
        self.window, self.slots = 4 * jobs, jobs
        self.label = f"{jobs} process{'es' if jobs > 1 else ''}"
        self.memory = self.largest = machine()
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        self._single = threading.Semaphore(jobs)
        self._held: dict[Future[Outcome], Task] = {}

    def submit(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task.attempt:
                threading.Thread(target=self._apart, args=(task,), daemon=True).start()
                continue
            with blocked():
                try:
                    future = self._started().submit(execute, task)
                except RuntimeError:  # a pool that a dying worker broke takes nothing any more
                    self._pool = None
                    future = self._started().submit(execute, task)
            self._held[future] = task
            future.add_done_callback(self._arrived)

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = _pool(self._jobs)
        return self._pool

    def _apart(self, task: Task) -> None:
        """A task whose worker died, or died beside another, gets a process of its own:
        the next death is its doing."""
        with self._single, _pool(1) as alone:
            with blocked():
                future = alone.submit(execute, task)
            # before the pool ends its other processes
            future.add_done_callback(lambda _: codes.extend(_codes(alone)))
            codes: list[int] = []
            try:
                outcome = future.result()
            except Exception as fault:  # whatever ended the process ends up in the outcome
                lost = type(fault).__name__ == "BrokenProcessPool"
                outcome = Outcome(error=fault, lost=lost, how=ended(codes[0]) if codes and lost else "")
        self.arrivals.put((task, outcome))

    def _arrived(self, future: Future[Outcome]) -> None:
        task = self._held.pop(future)
        if future.cancelled():
            return
        fault = future.exception()
        if fault is None:
            self.arrivals.put((task, future.result()))
        else:
            broken = type(fault).__name__ == "BrokenProcessPool"
            error = fault if isinstance(fault, Exception) else RuntimeError(str(fault))
            codes = _codes(self._pool) if broken and self._pool is not None else []
            self.arrivals.put((task, Outcome(error=error, lost=broken, how=ended(codes[0]) if codes else "")))

    def learn(self, task: Task, outcome: Outcome) -> None:
        """Times change nothing here."""

    def drop(self) -> list[Task]:
        return [task for future, task in list(self._held.items()) if future.cancel()]

    def close(self, *, wait: bool) -> None:
        if self._pool is None:
            return
        workers = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=wait, cancel_futures=True)
        if not wait:
            for worker in workers:
                worker.terminate()


def _codes(pool: ProcessPoolExecutor) -> list[int]:
    """The exit codes of a pool's processes that ended other than well."""
    return [one.exitcode for one in list((pool._processes or {}).values()) if one.exitcode]


def _pool(size: int) -> ProcessPoolExecutor:
    context = get_context("forkserver")
    context.set_forkserver_preload(["npuflow.flow.run_step"])
    return ProcessPoolExecutor(size, mp_context=context, initializer=_begin)


def _begin() -> None:
    """What a worker does first: it ends when the build does, also one that is killed and can tell nobody."""
    one_thread_each()
    build = parent_process()
    if build is not None:
        threading.Thread(target=_end_with, args=(build,), daemon=True).start()


def _end_with(build: BaseProcess) -> None:
    build.join()
    signal.raise_signal(signal.SIGKILL)
