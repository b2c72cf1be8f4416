"""The default: threads, and processes for a stage that turns out to keep the interpreter busy for long."""

from __future__ import annotations

import queue
from collections import defaultdict
from collections.abc import Sequence

from npuflow.flow.memory import machine
from npuflow.flow.run_pool import Arrival, Processes, Threads
from npuflow.flow.run_step import Outcome, Task

WORTH = 0.25  # mean seconds of a task above which another process is worth its start


class Mixed:
    """Sends tasks of native code to threads, and long ones of pure Python to processes."""

    dashboard: str | None = None

    def __init__(self, jobs: int) -> None:
        self.memory = self.largest = machine()
        self.arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._threads, self._processes = Threads(jobs, self.arrivals), Processes(jobs, self.arrivals)
        self._times: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._waiting: dict[str, list[Task]] = defaultdict(list)
        self._asked: dict[str, int] = defaultdict(int)
        self._jobs = jobs
        self.window, self.slots = 256, jobs
        self.label = f"{jobs} threads or processes"

    def learn(self, task: Task, outcome: Outcome) -> None:
        """A stage's first times say where the rest of it goes."""
        times = self._times[task.step]
        times[0] += sum(done.seconds for done in outcome.done)
        times[1] += 1
        self._threads.learn(task, outcome)
        waiting = self._waiting.pop(task.step, [])
        if waiting:
            self._route(task.step, waiting)

    def submit(self, tasks: Sequence[Task]) -> None:
        by_step: dict[str, list[Task]] = defaultdict(list)
        for task in tasks:
            by_step[task.step].append(task)
        native = [task for group in by_step.values() for task in group if task.stage.cpu == "native"]
        if native:
            self._threads.submit(native)
        for step, group in by_step.items():
            if group[0].stage.cpu == "native":
                continue
            if self._times[step][1]:
                self._route(step, group)
                continue
            # Nobody knows yet how long this stage takes: one task goes ahead, the others wait for it.
            ahead = 0 if self._asked[step] else 1
            self._asked[step] += len(group)
            self._threads.submit(group[:ahead]) if ahead else None
            self._waiting[step] += group[ahead:]

    def _route(self, step: str, tasks: list[Task]) -> None:
        total, number = self._times[step]
        slow = total / max(1.0, number) > WORTH and len(tasks) > 1
        (self._processes if slow else self._threads).submit(tasks)

    def drop(self) -> list[Task]:
        back = [task for tasks in self._waiting.values() for task in tasks]
        self._waiting.clear()
        return [*back, *self._threads.drop(), *self._processes.drop()]

    def close(self, *, wait: bool) -> None:
        self._threads.close(wait=wait)
        self._processes.close(wait=wait)
