"""Executes tasks on this machine: waves of threads, and processes for steps of pure Python."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.pool import ThreadPool
from typing import Any, Protocol

from npuflow.flow.run_step import Outcome, Task, execute

Arrival = tuple[Task, Outcome]


class Executor(Protocol):
    """Takes tasks, and gives each back with its outcome in `arrivals`."""

    arrivals: queue.SimpleQueue[Arrival]
    window: int
    """Tasks worth holding at once."""
    label: str
    dashboard: str | None

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


class Threads:
    """Waves of `dask.threaded.get` over one pool of threads."""

    dashboard: str | None = None

    def __init__(self, jobs: int, arrivals: queue.SimpleQueue[Arrival] | None = None) -> None:
        self.arrivals = arrivals if arrivals is not None else queue.SimpleQueue()
        self.window = 256
        self.label = f"{jobs} thread{'s' if jobs > 1 else ''}"
        self._jobs = jobs
        self._held: dict[str, Task] = {}
        self._lock = threading.Lock()
        self._pool: ThreadPool | None = None
        self._waves: list[threading.Thread] = []

    def submit(self, tasks: Sequence[Task]) -> None:
        if self._pool is None:
            self._pool = ThreadPool(self._jobs)  # its threads are daemons: a second Ctrl-C need not wait for them
        with self._lock:
            self._held.update((task.name, task) for task in tasks)
        wave = threading.Thread(target=self._wave, args=(list(tasks),), name="npuflow-wave", daemon=True)
        self._waves = [one for one in self._waves if one.is_alive()] + [wave]
        wave.start()

    def _wave(self, tasks: list[Task]) -> None:
        from dask.threaded import get

        graph: dict[str, Any] = {task.name: (_Call(self, task),) for task in tasks}
        get(graph, list(graph), pool=self._pool, num_workers=self._jobs)

    def settle(self, task: Task) -> None:
        """Execute a task, unless it has been taken back."""
        with self._lock:
            held = self._held.pop(task.name, None)
        if held is not None:
            self.arrivals.put((task, execute(task)))

    def learn(self, task: Task, outcome: Outcome) -> None:
        """Times change nothing here."""

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
    """A task as dask runs it; an object of its own, because dask looks into tuples and lists for keys."""

    __slots__ = ("owner", "task")

    def __init__(self, owner: Threads, task: Task) -> None:
        self.owner, self.task = owner, task

    def __call__(self) -> None:
        self.owner.settle(self.task)


class Processes:
    """A pool of processes for steps that hold the interpreter lock."""

    dashboard: str | None = None

    def __init__(self, jobs: int, arrivals: queue.SimpleQueue[Arrival] | None = None) -> None:
        self.arrivals = arrivals if arrivals is not None else queue.SimpleQueue()
        self.window = 4 * jobs
        self.label = f"{jobs} process{'es' if jobs > 1 else ''}"
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        self._single = threading.Semaphore(jobs)
        self._held: dict[Future[Outcome], Task] = {}

    def submit(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task.attempt:
                threading.Thread(target=self._apart, args=(task,), daemon=True).start()
                continue
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
        """A task whose worker died, or died beside another, gets a process of its own: the next death is its doing."""
        with self._single, _pool(1) as alone:
            try:
                outcome = alone.submit(execute, task).result()
            except Exception as fault:  # whatever ended the process ends up in the outcome
                outcome = Outcome(error=fault, lost=type(fault).__name__ == "BrokenProcessPool")
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
            self.arrivals.put((task, Outcome(error=error, lost=broken)))

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


def _pool(size: int) -> ProcessPoolExecutor:
    context = get_context("forkserver")
    context.set_forkserver_preload(["npuflow.flow.run_step"])
    return ProcessPoolExecutor(size, mp_context=context, initializer=one_thread_each)
