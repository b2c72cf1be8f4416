"""The tasks of a build: what steps lack, in batches that wait until a worker and memory are free."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from npuflow.base.digest import digest
from npuflow.flow.events import Event, Running
from npuflow.flow.executor import TaskExecutor
from npuflow.flow.memory import MemoryBudget
from npuflow.flow.refs import Ref
from npuflow.flow.run_state import StepState, batches, shares, task, units
from npuflow.flow.run_step import Task
from npuflow.flow.store import Store


class _Waiting:
    """The tasks that a step still has to give, one of them looked at ahead."""

    def __init__(self, tasks: Iterator[Task]) -> None:
        self._tasks = tasks
        self.next = next(tasks, None)

    def take(self) -> Task | None:
        taken, self.next = self.next, next(self._tasks, None)
        return taken


class Queue:
    """Tasks that wait for workers, and those that run. `force`: steps that run although they are known."""

    def __init__(
        self, workers: TaskExecutor, store: Store, force: frozenset[str], emit: Callable[[Event], None]
    ) -> None:
        self.workers, self.store, self.force, self.emit = workers, store, force, emit
        self.budget = MemoryBudget(workers.memory)
        self.running: dict[str, Task] = {}
        self._waiting: deque[_Waiting] = deque()

    def put(
        self,
        state: StepState,
        refs: Mapping[str, Ref | None],
        misses: Mapping[str, str | None],
        size: int | None = None,
    ) -> None:
        """Queue what a step lacks. `size`: items a task, where it is not the stage's own."""
        self._waiting.append(_Waiting(self._tasks(state, refs, misses, size)))

    def _tasks(
        self,
        state: StepState,
        refs: Mapping[str, Ref | None],
        misses: Mapping[str, str | None],
        size: int | None,
    ) -> Iterator[Task]:
        """The misses of a step in batches, made when a worker can take them."""
        step = state.step
        number = units(step, misses.values())
        sizes = shares(size or max(1, step.stage.batch), number, self.workers.slots)
        for batch in batches(state, misses, sizes):
            made = task(state, refs, batch, self.store.spec, force=step.name in self.force)
            yield self._named(made, state)

    def _named(self, made: Task, state: StepState) -> Task:
        keys = [one.key for one in made.work]
        made.attempt = max(state.attempts.get(key, 0) for key in keys)
        whole = keys[0] if len(keys) == 1 else digest(keys)
        made.name = f"npu-{self.store.id}-{whole.partition(':')[2]}-{made.attempt}"
        if made.force:
            made.name += f"-{self.store.lease}"
        return made

    def feed(self, states: Mapping[str, StepState], hold: bool) -> None:
        """Hand out tasks, but no more than the workers can hold, nor than fit into memory together. `hold`:
        only tasks of quick stages."""
        handed: list[Task] = []
        waiting, budget, window = self._waiting, self.budget, self.workers.window
        if len(budget.tasks) > window // 2:
            return  # a wave of a few is dearer than a wave of many
        blocked = 0
        while blocked < len(waiting) and len(budget.tasks) < window:
            ready = waiting[0]
            if ready.next is None:
                waiting.popleft()
                continue
            waiting.rotate(-1)  # steps that are ready together take turns
            if not budget.fits(ready.next.stage.memory) or (hold and not ready.next.stage.quick):
                blocked += 1
                continue
            made, blocked = ready.take(), 0
            if made is None:
                continue
            budget.take(made.name, made.stage.memory)
            states[made.step].pace.begin()
            for one in made.work:
                self.running[one.key] = made
                self.emit(Running(made.step, one.item, one.key, made.attempt))
            handed.append(made)
        if handed:
            self.workers.submit(handed)

    def ended(self, sent: Task) -> None:
        """A task is back, whatever came of it: its memory is free."""
        self.budget.give(sent.name)
        for one in sent.work:
            self.running.pop(one.key, None)
