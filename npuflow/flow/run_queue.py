"""The tasks of a build: what steps lack, in batches that wait until a worker and memory are free."""

from __future__ import annotations

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

    def __init__(self, tasks: Iterator[Task], urgency: int) -> None:
        self._tasks, self.urgency = tasks, urgency
        self.next = next(tasks, None)

    def take(self) -> Task | None:
        taken, self.next = self.next, next(self._tasks, None)
        return taken


class Queue:
    """Tasks that wait for workers, and those that run, the most urgent first. `urgency`: by step, see `Plan`;
    `force`: steps that run although they are known."""

    def __init__(
        self, workers: TaskExecutor, store: Store, urgency: Mapping[str, int], force: frozenset[str],
        emit: Callable[[Event], None],
    ) -> None:
        self.workers, self.store, self.force, self.emit = workers, store, force, emit
        self.budget = MemoryBudget(workers.memory)
        self.running: dict[str, Task] = {}
        self._urgency = urgency
        self._waiting: list[_Waiting] = []

    def put(
        self,
        state: StepState,
        refs: Mapping[str, Ref | None],
        misses: Mapping[str, str | None],
        size: int | None = None,
    ) -> None:
        """Queue what a step lacks. `size`: items a task, where it is not the stage's own."""
        tasks = self._tasks(state, refs, misses, size)
        self._waiting.append(_Waiting(tasks, self._urgency[state.step.name]))

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
        budget, window = self.budget, self.workers.window
        waiting = self._waiting = [one for one in self._waiting if one.next is not None]
        if len(budget.tasks) > window // 2 and not self._urgent():
            return  # a wave of a few is dearer than a wave of many
        blocked: list[_Waiting] = []
        while len(budget.tasks) < window:
            able = (one for one in waiting if one.next is not None and one not in blocked)
            ready = max(able, key=lambda one: one.urgency, default=None)
            if ready is None:
                break
            waiting.remove(ready)
            waiting.append(ready)  # steps that are as urgent take turns
            assert ready.next is not None
            early = hold and not ready.next.stage.quick
            if early or not budget.fits(ready.next.stage.memory) or self._can_wait(ready):
                blocked.append(ready)
                continue
            made, blocked = ready.take(), []
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

    @property
    def _most(self) -> int:
        """The urgency of the most urgent task that the workers have."""
        return max((self._urgency[made.step] for made in self.running.values()), default=-1)

    def _urgent(self) -> bool:
        """Whether a task is more urgent than any that the workers have."""
        most = self._most
        return any(one.urgency > most for one in self._waiting)

    def _can_wait(self, ready: _Waiting) -> bool:
        """Whether a task that may take long would take the place of what follows a more urgent one: once it
        runs, that waits."""
        single = ready.next is not None and ready.next.work[0].item is None
        return single and len(self.budget.tasks) >= self.workers.slots and ready.urgency < self._most

    def ended(self, sent: Task) -> None:
        """A task is back, whatever came of it: its memory is free."""
        self.budget.give(sent.name)
        for one in sent.work:
            self.running.pop(one.key, None)
