"""Executes tasks on a cluster of worker processes, after each worker has shown that
it would do the same work."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from npuflow.base.errors import BuildError, UsageError
from npuflow.flow import store_files as files
from npuflow.flow.interrupt import blocked
from npuflow.flow.keys import plugin_code, split
from npuflow.flow.memory import machine, shown, size
from npuflow.flow.plan import Plan
from npuflow.flow.run_deaths import UNKNOWN, Deaths, died, none_left
from npuflow.flow.run_pool import Arrival, Executor, Threads
from npuflow.flow.run_probe import Question, ask
from npuflow.flow.run_step import Outcome, Task, execute
from npuflow.flow.store import Store

FEW, MANY = 8, 64  # tasks at hand for each worker, and of short tasks
SHORT = 0.05  # seconds
LOOK = 0.5  # seconds between two looks at who has joined or gone
ROUNDS = 3  # times that a worker may leave the probe unanswered, and that all may die in it
RETURN = 10.0  # seconds within which a nanny starts a worker anew
PATIENCE = 30.0  # seconds that a build waits for a worker when it has none left
_HINT = "threads, processes, processes:N, or the address of a scheduler such as tcp://host:8786"


def executor(scheduler: str, jobs: int, plan: Plan, store: Store, memory: str | None = None) -> Executor:
    """`threads`, `processes[:N]`, or the address of a cluster. `memory` is what they may
    take, if not the machine's."""
    kind, _, rest = scheduler.partition(":")
    if scheduler == "threads":
        from npuflow.flow.run_mixed import Mixed

        made = Mixed(jobs) if jobs > 1 else Threads(1)
        made.memory = size(memory) if memory else made.memory
        return made
    if kind == "processes" and (rest.isdecimal() or not rest):
        return Cluster(None, int(rest or jobs), plan, store, size(memory) if memory else machine())
    if "://" in scheduler:
        return Cluster(scheduler, jobs, plan, store, size(memory) if memory else None)
    raise UsageError(f'there is no scheduler "{scheduler}"', hint=_HINT, code="NF-USAGE-058")


class Cluster:
    """A dask cluster, started for this build or joined by its address."""

    def __init__(
        self, address: str | None, jobs: int, plan: Plan, store: Store, memory: int | None = None
    ) -> None:
        import distributed

        client: Any = distributed.Client
        cluster: Any = distributed.LocalCluster

        self.arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._plan, self._store = plan, store
        self._held: dict[str, tuple[Any, Task]] = {}
        self._bound: dict[str, frozenset[str]] = {}
        """Task -> the workers that alone may take it; empty: all."""
        self._lock = threading.Lock()
        self._closed = False
        self._own: Any = None
        self._deaths = Deaths()
        try:
            if address is None:
                # A worker that takes more than its share is ended before it takes the machine down; the share
                # is never less than what a stage says that it needs, as fewer of those run at once.
                share = max([(memory or machine()) // jobs, *(step.stage.memory for step in plan)])
                with blocked():
                    self._own = cluster(
                        n_workers=jobs,
                        threads_per_worker=1,
                        processes=True,
                        dashboard_address=":0",
                        memory_limit=share,
                        silence_logs=50,
                        env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                        worker_class=self._deaths.nanny(),
                    )
                self._join(jobs)
            self._client: Any = client(self._own or address, timeout=10, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as fault:
            hint = "start one with `dask scheduler` and `dask worker`, or check the address"
            raise BuildError(
                f"there is no scheduler at {address}: {fault}", hint=hint, code="NF-CLUSTER-001",
            ) from fault
        self.dashboard: str | None = self._client.dashboard_link or None
        self._good: set[str] = set()
        self._silent: Counter[str] = Counter()
        self.refused: dict[str, list[str]] = {}
        try:
            self._first()
        except BaseException:
            self.close(wait=True)
            raise
        limits = self._limits()
        self.memory = memory or sum(limits.values()) or machine()
        self.largest = max(limits.values(), default=machine())
        self.slots = max(1, len(self._good))
        self.window = FEW * self.slots
        self._ended: queue.SimpleQueue[tuple[Any, Task] | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        for work in (self._gather, self._watch):
            threading.Thread(
                target=work, name=f"npuflow{work.__name__.replace('_', '-')}", daemon=True
            ).start()
        self.label = (
            f"{len(self._good)} workers at "
            f"{self._client.scheduler.address if self._client.scheduler else address}"
        )

    def _question(self) -> Question:
        stages, plugins, libraries = {}, {}, {}
        for step in self._plan:
            if step.override is None:
                stages[step.name] = (
                    step.stage.__module__,
                    step.stage.function.__qualname__,
                    step.code.digest,
                )
                plugins.update(step.fixed["plugins"])
                for code in (step.code, *step.selected.values()):
                    plugins.update({label: plugin_code(*split(label)).digest for label in code.entries})
                libraries.update({k: v for k, v in step.fixed["libraries"].items() if isinstance(v, str)})
        token = files.fresh(self._store.root / "tmp", "probe-").name
        return Question(str(self._store.root), token, stages, plugins, libraries)

    def _join(self, jobs: int) -> None:
        """Wait for the workers of this build to start."""
        try:
            self._own.wait_for_workers(jobs, timeout=60)
        except TimeoutError:
            self._own.close(timeout=10)
            raise none_left(self._deaths.started(), own=True) from None

    def _first(self) -> None:
        """Find the first workers that may take work; those that die while they are asked
        come back and are asked again."""
        for _ in range(ROUNDS):
            self._look()
            if self._good or not (self._silent or self._deaths.ways) or not self._returned():
                break
        if self._good:
            return
        for worker in self._silent.keys() - self.refused.keys() - self._deaths.ways.keys():
            self._gone(worker)
        if self._deaths.ways and not self.refused:
            raise none_left(self._deaths.ways, own=self._own is not None)
        text = "; ".join(f"{worker}: {', '.join(why)}" for worker, why in self.refused.items())
        raise BuildError(
            "no worker of the cluster can do this build", because=text or "it has none",
            code="NF-CLUSTER-002",
            hint="install the driver's npuflow and libraries on the workers, then run again" if text
            else "start some: dask worker ADDRESS",
        )

    def _returned(self) -> bool:
        """Whether a worker is there that has not answered yet, after giving nannies
        the time to start one anew."""
        known = {*self._good, *self.refused, *self._deaths.ways}
        until = time.monotonic() + RETURN
        while True:
            time.sleep(LOOK)               # the scheduler takes a moment to notice a death
            if self._workers().keys() - known:
                return True
            if time.monotonic() > until:
                return False

    def _workers(self) -> dict[str, Any]:
        """The workers of the cluster as its scheduler knows them now."""
        found: dict[str, Any] | None = self._client.scheduler_info(n_workers=-1).get("workers")
        if found is None:                  # what dask gives when the connection is lost
            raise self._lost()
        self._deaths.limits.update(
            {name: one["memory_limit"] for name, one in found.items() if one.get("memory_limit")}
        )
        return found

    def _look(self) -> None:
        """Ask every worker that has not answered yet, and report those that are gone.

        Those that differ get no work, and the reason is reported; one that does not
        answer is asked again, or has died.
        """
        there = self._workers()
        for worker in [name for name in self._good if name not in there]:
            self._good.discard(worker)
            self._gone(worker)
        fresh = [one for one in there if one not in self._good and one not in self.refused]
        if not fresh:
            return
        question = self._question()
        probe = self._store.root / "tmp" / question.token
        with files.writing(self._store.root):
            probe.write_text(question.token)
        try:
            answers = self._client.run(ask, question, workers=fresh, on_error="return")
        finally:
            probe.unlink(missing_ok=True)
        silent = {
            worker: answer for worker, answer in answers.items() if isinstance(answer, OSError | TimeoutError)
        }
        there = self._workers() if silent else there
        for worker, answer in answers.items():
            if worker not in silent:
                self._judge(worker, answer)
            elif worker not in there:
                self._gone(worker)
            else:                          # lost on the way, or its end is not known yet
                self._silent[worker] += 1
                if self._silent[worker] >= ROUNDS:
                    self._judge(
                        worker,
                        [f"it does not answer ({answer}): look at its log, and whether it can be reached"],
                    )

    def _judge(self, worker: str, answer: list[str] | Exception) -> None:
        """A worker without faults gets work; another is refused with what differs."""
        if isinstance(answer, MemoryError):
            answer = ["it ran out of memory when it was asked: give it more (dask worker --memory-limit)"]
        if isinstance(answer, Exception):
            answer = [f"it cannot run npuflow ({answer}): install the same npuflow there"]
        if answer:
            self.refused[worker] = answer
            self._store.warn(f"worker {worker} is refused: {'; '.join(answer)}")
        else:
            self._good.add(worker)

    def _gone(self, worker: str) -> None:
        how = self._deaths.of(worker, self._client.get_events)
        text = f"worker {worker} died: {how}" if how else f"worker {worker} is gone: {UNKNOWN}"
        self._store.warn(f"{text}; its unfinished work is rescheduled")

    def _limits(self) -> dict[str, int]:
        """Worker -> the memory that it may take; those without a limit are left out."""
        workers = self._workers()
        return {name: found for name in self._good if (found := workers.get(name, {}).get("memory_limit"))}

    def _watch(self) -> None:
        """Keep up with workers that join and go. When there are none for long, what
        runs is given back as failed."""
        alone = time.monotonic()
        while not self._stop.wait(LOOK):
            try:
                self._look()
            except Exception as fault:  # the scheduler does not answer, or the build is closing
                if not self._closed and time.monotonic() - alone > PATIENCE:
                    self._give_up(fault if isinstance(fault, BuildError) else self._lost())
                    return
                continue
            if self._good:
                alone = time.monotonic()
                self._release()
            elif time.monotonic() - alone > PATIENCE and self._held:
                self._give_up(none_left(self._deaths.ways, own=self._own is not None))
                return

    def _release(self) -> None:
        """Steps that were bound to workers of which none is left go to others."""
        with self._lock:
            stranded = [
                (name, held)
                for name, held in self._held.items()
                if (only := self._bound.get(name)) and not only & self._good
            ]
            for name, _ in stranded:
                self._held.pop(name)
                self._bound.pop(name)
        if stranded:
            self._client.cancel([future for _, (future, _) in stranded])
        for _, (_, task) in stranded:
            self.arrivals.put((task, Outcome(error=BuildError(
                f"{task.step}: its workers died", code="NF-CLUSTER-004",
            ), lost=True)))

    def _lost(self) -> BuildError:
        hint = "start it again, then run the same command: what is finished is kept"
        return BuildError(
            "the connection to the scheduler of the cluster was lost", hint=hint, code="NF-CLUSTER-001",
        )

    def _give_up(self, error: BuildError) -> None:
        with self._lock:
            held, self._held = self._held, {}
        for _, task in held.values():
            self.arrivals.put((task, Outcome(error=error, fatal=True)))

    def submit(self, tasks: Sequence[Task]) -> None:
        groups: dict[int, list[Task]] = {}
        for task in tasks:
            groups.setdefault(task.stage.memory, []).append(task)
        for need, group in groups.items():
            try:
                only = self._able(group[0].step, need)
            except BuildError as fault:
                for task in group:
                    self.arrivals.put((task, Outcome(error=fault)))
                continue
            futures = self._client.map(execute, group, key=[task.name for task in group], pure=True, **only)
            for task, future in zip(group, futures, strict=True):
                with self._lock:
                    self._held[task.name] = (future, task)
                    self._bound[task.name] = frozenset(only.get("workers", ()))
                future.add_done_callback(self._arrived)

    def _able(self, step: str, need: int) -> dict[str, Any]:
        """Which workers may take a step: those that were found equal to the driver,
        and have the memory it needs."""
        if not self._good and not self.refused:
            return {}                      # one that is started anew takes it, or the watch gives up
        small = {name for name, limit in self._limits().items() if limit < need} if need else set()
        able = sorted(self._good - small)
        if not self._good:
            raise none_left(self._deaths.ways, own=self._own is not None)
        if not able:
            raise BuildError(
                f"{step} needs {shown(need)} of memory, which no worker of the cluster has",
                hint="start a worker with more (dask worker --memory-limit), or a smaller batch",
                code="NF-STEP-002",
            )
        return {"workers": able, "allow_other_workers": False} if self.refused or small else {}

    def _arrived(self, future: Any) -> None:
        with self._lock:
            held = self._held.pop(future.key, None)
            self._bound.pop(future.key, None)
        if held is None or self._closed:
            return
        if future.status == "finished":
            self._ended.put(held)
            return
        task = held[1]
        if future.status == "cancelled" and self._client.status != "running":
            self.arrivals.put((task, Outcome(error=self._lost(), fatal=True)))
            return
        why = future.exception() if future.status == "error" else None
        lost = why is None or type(why).__name__ in ("CancelledError", "FutureCancelledError")
        error = why if isinstance(why, Exception) else BuildError(
            f"{task.step}: the cluster lost the step", code="NF-CLUSTER-005",
        )
        if type(why).__name__ == "KilledWorker":  # the scheduler has already tried several
            error = died(task.step, "the workers that ran it", self._how(why), task.stage.lighter)
        self.arrivals.put((task, Outcome(error=error, lost=lost)))

    def _how(self, killed: Any) -> str:
        """How the last worker of a step ended, where it can be known."""
        worker = str(getattr(getattr(killed, "last_worker", None), "address", ""))
        return self._deaths.of(worker, self._client.get_events)

    def _gather(self) -> None:
        """Bring results here, as many at once as have come: a message for each would
        cost more than a short step."""
        while (first := self._ended.get()) is not None:
            some = [first]
            while len(some) < MANY and not self._ended.empty():
                one = self._ended.get()
                if one is None:
                    return
                some.append(one)
            try:
                found = self._client.gather([future for future, _ in some])
            except Exception:  # one of them was lost: each is asked for by itself
                found = [self._result(future) for future, _ in some]
            for (_, task), outcome in zip(some, found, strict=True):
                self.arrivals.put((task, outcome))

    def _result(self, future: Any) -> Outcome:
        try:
            found: Outcome = future.result()
        except Exception as fault:  # a result that was lost between its end and its reading
            return Outcome(error=fault, lost=True)
        return found

    def learn(self, task: Task, outcome: Outcome) -> None:
        """Workers keep more tasks at hand where these are short, so that none waits for the driver."""
        spent = sum(done.seconds for done in outcome.done)
        self.slots = max(1, len(self._good))
        self.window = (MANY if spent < SHORT and outcome.error is None else FEW) * self.slots

    def drop(self) -> list[Task]:
        with self._lock:
            held, self._held = self._held, {}
        self._client.cancel([future for future, _ in held.values()])
        return [task for _, task in held.values()]

    def close(self, *, wait: bool) -> None:
        self._closed = True
        if hasattr(self, "_stop"):
            self._stop.set()
        if hasattr(self, "_ended"):
            self._ended.put(None)
        with suppress(OSError, TimeoutError):
            self._client.close(timeout=5)
        if self._own is not None:
            with suppress(OSError, TimeoutError):
                self._own.close(timeout=10)
