"""One dask cluster that runs tasks: threads or processes started for a build, or a cluster that is joined."""

from __future__ import annotations

import pickle
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from npuflow.base.errors import BuildError
from npuflow.base.wording import counted
from npuflow.flow.executor_deaths import Deaths, all_rest, died
from npuflow.flow.executor_local import check_address, link, processes, quiet, shows, threads
from npuflow.flow.executor_tasks import UNTIL, Results, occupy, run, sealed
from npuflow.flow.executor_workers import LOOK, Workers
from npuflow.flow.memory import machine
from npuflow.flow.plan import Plan
from npuflow.flow.run_step import Outcome, Task
from npuflow.flow.store import Store

NEAR, FEW, MANY = 3, 8, 64  # tasks at hand for each thread here, for each worker, and of short tasks
SHORT = 0.05  # seconds
DEATHS = 4  # workers of a joined cluster that a step may end; dask's own scheduler allows as many
JOIN = 10.0  # seconds within which a scheduler takes a build
PATIENCE = 30.0  # seconds that a build waits for a worker when it has none left


class Cluster:
    """A dask cluster: `threads` or `processes` started for this build, or one joined by its address.

    The workers of a joined cluster, and processes, get work once they have shown that they would do the same
    as the driver.
    """

    def __init__(
        self,
        place: str,
        jobs: int,
        plan: Plan,
        store: Store,
        arrivals: queue.SimpleQueue[tuple[Task, Outcome]],
        *,
        memory: int | None = None,
        dashboard: bool = True,
    ) -> None:
        self.arrivals = arrivals
        self._jobs = jobs
        self._urgency = plan.urgency
        self._inside = place == "threads"
        self._held: dict[str, tuple[Any, Task]] = {}
        self._ended: dict[str, tuple[Any, Task]] = {}
        """What has run, and is still to be fetched: a result may die with its worker."""
        self._bound: dict[str, frozenset[str]] = {}
        """Task -> the workers that alone may take it; empty: all."""
        self._count = 0
        """Tasks that have ended."""
        self._sent: dict[str, tuple[int, int]] = {}
        """Task -> how often it was sent to other workers, and how many had ended when it was sent last."""
        self._under: dict[str, set[str]] = {}
        """Key -> workers that died under it while nothing else ended."""
        self._behind: deque[Task] = deque()
        """What waits until the suspects of a death have run."""
        self._suspects: deque[Task] = deque()
        self._alone = False  # whether a suspect runs
        self._lock = threading.RLock()
        self._closed = False
        self._own: Any = None
        self._loud: Callable[[], None] = lambda: None
        self._deaths = Deaths()
        self._stop = threading.Event()
        # never less than what a stage states that it needs, as fewer of those run at once
        share = max([(memory or machine()) // jobs, *(step.stage.memory for step in plan)])
        self._client = self._connected(place, jobs, share, dashboard and shows())
        self._results = Results(self._client, self._fetched, self._arrived)
        self._workers = Workers(self._client, plan, store, self._deaths, own=self._own is not None)
        try:
            self.dashboard = link(self._client, own=self._own is not None) if dashboard else None
            if not self._inside:
                self._workers.first()
        except BaseException:
            self.close(wait=True)
            raise
        limits = self._workers.limits()
        self.memory = memory or (machine() if self._own else sum(limits.values()) or machine())
        """Bytes that tasks which run at once may claim together."""
        self.largest = max(limits.values(), default=machine())
        """Bytes that one of them can have at most."""
        self.slots = jobs if self._inside else max(1, len(self._workers.good))
        self.window = (NEAR if self._inside else FEW) * self.slots
        threading.Thread(target=self._results.run, name="npuflow-results", daemon=True).start()
        if not self._inside:
            threading.Thread(target=self._watch, name="npuflow-watch", daemon=True).start()
        at = self._client.scheduler.address if self._client.scheduler else place
        self.label = counted(jobs, "thread") if self._inside else f"{counted(self.slots, 'worker')} at {at}"

    def _connected(self, place: str, jobs: int, share: int, dashboard: bool) -> Any:
        """A client of the cluster at an address, or of one started here. `share`: memory of a process."""
        import distributed

        try:
            if self._inside:
                self._own = threads(jobs, dashboard=dashboard)
            elif "://" not in place:
                self._own = processes(jobs, share, self._deaths, dashboard=dashboard)
            else:
                check_address(place)
            self._loud = quiet()
            client: Any = distributed.Client
            return client(self._own or place, timeout=JOIN, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as fault:
            if self._own is not None:
                self._own.close(timeout=10)
            self._loud()
            hint = "start one with `dask scheduler` and `dask worker`, or check the address"
            raise BuildError(
                f"there is no scheduler at {place}: {fault}", hint=hint, code="NF-CLUSTER-001"
            ) from fault

    def occupy(self, until: threading.Event) -> None:
        """Take up one thread of this process until something else here has ended: no more than `jobs` steps
        run at once."""
        name = f"npuflow-{id(until)}"
        UNTIL[name] = until
        self._held_thread = self._client.submit(occupy, name, key=name)

    def _watch(self) -> None:
        """Keep up with workers that join and go. When there are none for long, what runs is given back as
        failed, and what is sent later as well."""
        alone = time.monotonic()
        while not self._stop.wait(LOOK):
            try:
                self._workers.look()
                self._release()
            except Exception as fault:  # the scheduler does not answer, or the build is closing
                if time.monotonic() - alone > PATIENCE:
                    self._give_up(fault if isinstance(fault, BuildError) else self._workers.lost())
                continue
            rest = self._resting()
            if self._workers.good:
                self.go_on()
            if self._workers.good and not rest:
                alone = time.monotonic()
            elif time.monotonic() - alone > PATIENCE and (self._held or self._ended or self._behind):
                if rest or not self._guilty():
                    self._give_up(all_rest(rest) if rest else self._workers.none_left())
                alone = time.monotonic()

    def _resting(self) -> frozenset[str]:
        """The workers of a step at hand, where all of them are paused and run nothing."""
        good, resting = self._workers.good, self._workers.resting
        with self._lock:
            groups = {frozenset(self._bound[name] & good or good) for name in self._held}
        return next((group for group in groups if group and group <= resting), frozenset())

    def _release(self) -> None:
        """Reassign steps whose allowed workers are all gone, also what ran: the results went with them. Where
        something ended since a step was sent, it is hardly what ends workers; else it fails after deaths."""
        good = self._workers.good
        with self._lock:
            sent = self._held | self._ended
            stranded = [name for name in sent if (only := self._bound[name]) and not only & good]
            gone, back = [], list[tuple[Task, Outcome]]()
            for name in stranded:
                future, task = sent[name]
                innocent = self._sent[task.name][1] != self._count
                blamed = None if innocent else self._blamed(task, name)
                if blamed is None and not good:
                    continue  # it waits for workers where it is
                self._held.pop(name, None)
                self._ended.pop(name, None)
                del self._bound[name]
                gone.append(future)
                if innocent:
                    self._sent[task.name] = self._sent[task.name][0] + 1, self._count
                    self._behind.append(task)
                else:
                    error = BuildError(f"{task.step}: its workers died", code="NF-CLUSTER-004")
                    back.append((task, blamed or Outcome(error=error, lost=True)))
        for arrival in back:
            self.arrivals.put(arrival)
        self._cancel(gone)

    def _cancel(self, futures: Sequence[Any]) -> None:
        if futures and self._client.status == "running":
            self._client.cancel(futures)

    def _blamed(self, task: Task, name: str) -> Outcome | None:
        """The end of a task under which enough workers died, while nothing else ended."""
        under = self._under.setdefault(task.work[0].key, set())
        under |= self._bound[name]
        return Outcome(error=self._died(task, under)) if len(under) >= DEATHS else None

    def _died(self, task: Task, workers: set[str]) -> BuildError:
        known = [how for one in sorted(workers) if (how := self._workers.way(one))]
        return died(task.step, "the workers that ran it", known[-1] if known else "", task.stage.lighter)

    def _guilty(self) -> bool:
        """When no worker comes any more: whether several died one after another under steps, which then
        fail by name."""
        with self._lock:
            found = [
                (name, self._died(task, under))
                for name, (_, task) in self._held.items()
                if len(under := self._under.get(task.work[0].key, set())) > 1
            ]
            back = [(*self._held.pop(name), self._bound.pop(name), error) for name, error in found]
        for _, task, _, error in back:
            self.arrivals.put((task, Outcome(error=error)))
        self._cancel([future for future, *_ in back])
        return bool(back)

    def _give_up(self, error: BuildError) -> None:
        if self._closed:
            return
        with self._lock:
            self._held |= self._ended
            self._ended = {}
        for task in self._taken():
            self.arrivals.put((task, Outcome(error=error, fatal=True)))

    def _taken(self, keep: frozenset[str] = frozenset()) -> list[Task]:
        """Forget the tasks at hand but for some and those that ran; what the cluster has is cancelled."""
        with self._lock:
            sent = {name: held for name, held in self._held.items() if name not in keep}
            back = [*(task for _, task in sent.values()), *self._suspects, *self._behind]
            self._held = {name: held for name, held in self._held.items() if name in keep}
            self._suspects.clear()
            self._behind.clear()
            self._alone = False
        self._cancel([future for future, _ in sent.values()])
        return back

    def submit(self, tasks: Sequence[Task]) -> None:
        """Send tasks to the workers. Where a process has died, each task that it had is a suspect and runs
        with nothing beside it: the next death is its doing."""
        with self._lock:
            for task in tasks:
                if task.attempt and self._own and not self._inside:
                    self._suspects.append(task)
                else:
                    self._behind.append(task)
            # first what has been under the most deaths: the others may then not be needed
            self._suspects = deque(sorted(self._suspects, key=lambda task: -task.attempt))
            self.go_on()

    def go_on(self) -> None:
        """Send what may run now."""
        with self._lock:
            if self._alone and self._held:
                return
            while self._suspects and not self._held:
                self._send([self._suspects.popleft()])
                self._alone = True
            if not self._suspects and not (self._alone and self._held):
                self._alone = False
                some = list(self._behind)
                self._behind.clear()
                self._send(some)

    def _send(self, tasks: Sequence[Task]) -> None:
        groups: dict[tuple[int, int], list[Task]] = {}
        for task in tasks:
            groups.setdefault((task.stage.memory, self._urgency[task.step]), []).append(task)
        for (need, urgency), group in groups.items():
            try:
                only = self._workers.able(group[0].step, need)
                if only is None:
                    self._behind.extend(group)
                    continue
                what = (run, group) if self._inside else (pickle.loads, list(map(sealed, group)))
                keys = [self._key(task) for task in group]
                futures = self._client.map(*what, key=keys, pure=True, priority=urgency, **only)
            except Exception as fault:  # no task may be lost, whatever thread sends it
                gone = self._client.status != "running"
                for task in group:
                    error = self._workers.lost() if gone else fault
                    self.arrivals.put((task, Outcome(error=error, fatal=gone)))
                continue
            for task, future in zip(group, futures, strict=True):
                self._held[future.key] = (future, task)
                self._bound[future.key] = frozenset(only.get("workers", ()))
                future.add_done_callback(self._arrived)

    def _key(self, task: Task) -> str:
        """What dask calls a task: a name of its own each time that it is sent to other workers."""
        sent, _ = self._sent.setdefault(task.name, (0, -1))
        self._sent[task.name] = sent, self._count
        return f"{task.name}~{sent}" if sent else task.name

    def _arrived(self, future: Any) -> None:
        """A future has ended: its result is fetched, or the task goes back with what went wrong."""
        status = future.status
        with self._lock:
            held = self._held.pop(future.key, None) or self._ended.pop(future.key, None)
            if held is None or self._closed:
                return
            if status not in ("cancelled", "error"):
                self._count += 1
                self._ended[future.key] = held
                self._results.put(future)
                self.go_on()
                return
            del self._bound[future.key]
        task = held[1]
        if status == "cancelled" and self._client.status != "running":
            self.arrivals.put((task, Outcome(error=self._workers.lost(), fatal=True)))
            return
        why = future.exception() if status == "error" else None
        lost = why is None or type(why).__name__ in ("CancelledError", "FutureCancelledError")
        how, error = "", why
        if not isinstance(error, Exception):
            error = BuildError(f"{task.step}: the cluster lost the step", code="NF-CLUSTER-005")
        if type(why).__name__ == "KilledWorker":  # a joined scheduler has already tried several workers
            how, lost = self._workers.how(why), self._own is not None
            error = died(task.step, "the workers that ran it", how, task.stage.lighter)
        self.arrivals.put((task, Outcome(error=error, lost=lost, how=how)))

    def _fetched(self, future: Any, outcome: Outcome) -> None:
        """What came of a task that has ended, unless it was sent again meanwhile."""
        with self._lock:
            held = self._ended.pop(future.key, None)
            if held is None or self._closed:
                return
            del self._bound[future.key]
            self._sent.pop(held[1].name, None)
        self.arrivals.put((held[1], self._fit(outcome)))

    def _fit(self, outcome: Outcome) -> Outcome:
        """What came of a task; where its worker must not run it, the worker gets no more work."""
        if outcome.unfit and not outcome.fatal:
            if outcome.address not in self._workers.refused:
                self._workers.refuse(outcome.address, outcome.unfit + ": " + self._workers.remedy())
            if not self._workers.good:
                outcome.error, outcome.fatal = self._workers.none_fit(), True
        return outcome

    def learn(self, task: Task, outcome: Outcome) -> None:
        """Workers keep more tasks at hand where these are short, so that none waits for the driver."""
        spent = sum(done.seconds for done in outcome.done)
        self.slots = self._jobs if self._inside else max(1, len(self._workers.good))
        few = NEAR if self._inside else FEW
        self.window = (MANY if spent < SHORT and outcome.error is None else few) * self.slots

    def drop(self) -> list[Task]:
        """Take back what has not begun, as far as that is known: what runs in this process ends there."""
        running = frozenset[str]()
        if self._inside:
            with suppress(RuntimeError):  # the worker's own thread changes the set
                running = frozenset(
                    task.key for one in self._own.workers.values() for task in one.state.executing
                )
        return self._taken(running)

    def close(self, *, wait: bool) -> None:
        """Stop a cluster that was started here, leave one that was joined. Steps that run in this process
        cannot be stopped: without `wait`, nobody waits for them."""
        self._closed = True
        self._stop.set()
        self._results.close()
        if self._inside and not wait:
            self._own.shutdown_on_close = False
            threading.Thread(target=self._shut, name="npuflow-close", daemon=True).start()
        else:
            self._shut()

    def _shut(self) -> None:
        with suppress(OSError, TimeoutError):
            self._client.close(timeout=5)
        if self._own is not None:
            with suppress(OSError, TimeoutError):
                self._own.close(timeout=10)
        self._loud()
