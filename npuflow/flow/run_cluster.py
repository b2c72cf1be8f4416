"""Executes tasks on a cluster of worker processes, after each worker has shown that it would do the same work."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from npuflow.base.code_memo import PICTURES
from npuflow.base.errors import BuildError, UsageError
from npuflow.flow import store_files as files
from npuflow.flow.memory import machine, shown, size
from npuflow.flow.plan import Plan
from npuflow.flow.run_pool import Arrival, Executor, Threads
from npuflow.flow.run_step import Outcome, Task, died, execute
from npuflow.flow.store import Store

FEW, MANY = 8, 64  # tasks at hand for each worker, and of short tasks
SHORT = 0.05  # seconds
LOOK = 0.5  # seconds between two looks at who has joined
_HINT = "threads, processes, processes:N, or the address of a scheduler such as tcp://host:8786"


def executor(scheduler: str, jobs: int, plan: Plan, store: Store, memory: str | None = None) -> Executor:
    """`threads`, `processes[:N]`, or the address of a cluster. `memory` is what they may take, if not the machine's."""
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
    raise UsageError(f'there is no scheduler "{scheduler}"', hint=_HINT)


class Question(NamedTuple):
    """What a worker has to answer before it is given work."""

    root: str
    token: str
    stages: Mapping[str, tuple[str, str, str]]
    """Stage -> its module, its name in it, the digest of its code."""
    plugins: Mapping[str, str]
    """Selected plug-ins and their code."""
    libraries: Mapping[str, str]


def ask(question: Question) -> list[str]:
    """Run on a worker: what differs here from the driver, or nothing."""
    from importlib import import_module, metadata

    from npuflow.flow.processor import processor

    faults: list[str] = []
    PICTURES.open(Path(question.root) / "memo" / "code.json")
    for name, (module, attribute, wanted) in question.stages.items():
        try:
            from npuflow.base.code import closure

            found = closure(getattr(import_module(module), attribute).function).digest
        except Exception as fault:  # whatever keeps a stage from being imported there is the answer
            faults.append(f"stage {name} cannot be imported ({fault}): install the same packages there")
            continue
        if found != wanted:
            faults.append(f"the code of stage {name} differs: install the same npuflow and plug-ins there")
    for label, wanted in question.plugins.items():
        from npuflow.flow.keys import plugin_code

        registry, _, entry = label.partition("/")
        name, _, facets = entry.partition(":")
        try:
            found = plugin_code(registry, name, tuple(facets.split(",")) if facets else None)[1].digest
        except Exception as fault:  # as above
            faults.append(f"plug-in {label} is not there ({fault}): install it on the worker")
            continue
        if found != wanted:
            faults.append(f"the code of plug-in {label} differs: install the same version there")
    for library, wanted in question.libraries.items():
        if library == "cpu":                      # stages of float results: the feature class that their keys state
            if processor() != wanted:
                faults.append(f"its processor ({processor()}) computes floats unlike the driver's ({wanted})")
            continue
        with suppress(metadata.PackageNotFoundError):
            if metadata.version(library) == wanted:
                continue
            faults.append(f"it has {library} {metadata.version(library)}, not {wanted}: pip install {library}=={wanted}")
            continue
        faults.append(f"it has no {library}: pip install {library}=={wanted}")
    probe = Path(question.root) / "tmp" / question.token
    try:
        seen = probe.read_text()
        made = files.fresh(probe.parent, question.token + "-answer")
        made.write_text(seen)
        made.unlink()
    except OSError as fault:
        hint = "mount the cache there at the same path, or choose another with --cache"
        faults.append(f"it cannot use the cache {question.root} ({fault.strerror}): {hint}")
        return faults
    if seen != question.token:
        faults.append(f"it reads another folder at {question.root}: mount the driver's cache there")
    return faults


class Cluster:
    """A dask cluster, started for this build or joined by its address."""

    def __init__(self, address: str | None, jobs: int, plan: Plan, store: Store, memory: int | None = None) -> None:
        import distributed

        client: Any = distributed.Client
        cluster: Any = distributed.LocalCluster

        self.arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._plan, self._store = plan, store
        self._held: dict[str, tuple[Any, Task]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._own: Any = None
        try:
            if address is None:
                # A worker that takes more than its share is ended before it takes the machine down; the share
                # is never less than what a stage says that it needs, as fewer of those run at once.
                share = max([(memory or machine()) // jobs, *(step.stage.memory for step in plan)])
                self._own = cluster(
                    n_workers=jobs, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=share,
                    silence_logs=50, env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                )  # fmt: skip
                self._own.wait_for_workers(jobs, timeout=60)
            self._client: Any = client(self._own or address, timeout=10, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as fault:
            hint = "start one with `dask scheduler` and `dask worker`, or check the address"
            raise BuildError(f"there is no scheduler at {address}: {fault}", hint=hint, code="NF-CLUSTER-001") from fault
        self.dashboard: str | None = self._client.dashboard_link or None
        self._good: set[str] = set()
        self.refused: dict[str, list[str]] = {}
        try:
            self._probe()
        except BaseException:
            self.close(wait=True)
            raise
        self.memory = memory or sum(self._limits().values()) or machine()
        self.slots = max(1, len(self._good))
        self.window = FEW * self.slots
        self._looked = 0.0
        self._ended: queue.SimpleQueue[tuple[Any, Task] | None] = queue.SimpleQueue()
        threading.Thread(target=self._gather, name="npuflow-gather", daemon=True).start()
        self.label = f"{len(self._good)} workers at {self._client.scheduler.address if self._client.scheduler else address}"

    def _question(self) -> Question:
        stages, plugins, libraries = {}, {}, {}
        for step in self._plan:
            if step.override is None:
                stages[step.name] = (step.stage.__module__, step.stage.__qualname__, step.code.digest)
                plugins.update(step.fixed["plugins"])
                libraries.update({k: v for k, v in step.fixed["libraries"].items() if isinstance(v, str)})
        token = files.fresh(self._store.root / "tmp", "probe-").name
        return Question(str(self._store.root), token, stages, plugins, libraries)

    def _probe(self) -> None:
        """Ask every worker that has not answered yet; those that differ get no work, and the reason is told."""
        known = self._good | set(self.refused)
        fresh = [one for one in self._client.scheduler_info(n_workers=-1)["workers"] if one not in known]
        if fresh:
            question = self._question()
            probe = self._store.root / "tmp" / question.token
            with files.writing(self._store.root):
                probe.write_text(question.token)
            try:
                answers = self._client.run(ask, question, workers=fresh, on_error="return")
            finally:
                probe.unlink(missing_ok=True)
            for worker, answer in answers.items():
                if isinstance(answer, Exception):
                    answer = [f"it cannot run npuflow ({answer}): install the same npuflow there"]
                if answer:
                    self.refused[worker] = answer
                    self._store.warn(f"worker {worker} is refused: {'; '.join(answer)}")
                else:
                    self._good.add(worker)
        if not self._good:
            text = "; ".join(f"{worker}: {', '.join(why)}" for worker, why in self.refused.items()) or "it has none"
            raise BuildError(
                "no worker of the cluster can do this build", because=text,
                hint="make the workers equal to the driver, then run again", code="NF-CLUSTER-002",
            )  # fmt: skip

    def _limits(self) -> dict[str, int]:
        """Worker -> the memory that it may take; those without a limit are left out."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        return {name: found for name in self._good if (found := workers.get(name, {}).get("memory_limit"))}

    def submit(self, tasks: Sequence[Task]) -> None:
        if time.monotonic() - self._looked > LOOK:
            if len(self._client.scheduler_info(n_workers=-1)["workers"]) != len(self._good) + len(self.refused):
                self._probe()
            self._looked = time.monotonic()
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
                future.add_done_callback(self._arrived)

    def _able(self, step: str, need: int) -> dict[str, Any]:
        """Which workers may take a step: those that were found equal to the driver, and have the memory it needs."""
        small = {name for name, limit in self._limits().items() if limit < need} if need else set()
        able = sorted(self._good - small)
        if not able:
            raise BuildError(
                f"{step} needs {shown(need)} of memory, which no worker of the cluster has",
                hint="start a worker with more (dask worker --memory-limit), or a smaller batch", code="NF-STEP-002",
            )  # fmt: skip
        return {"workers": able, "allow_other_workers": False} if self.refused or small else {}

    def _arrived(self, future: Any) -> None:
        with self._lock:
            held = self._held.pop(future.key, None)
        if held is None or self._closed:
            return
        if future.status == "finished":
            self._ended.put(held)
            return
        task = held[1]
        why = future.exception() if future.status == "error" else None
        lost = why is None or type(why).__name__ in ("CancelledError", "FutureCancelledError")
        error = why if isinstance(why, Exception) else BuildError(f"{task.step}: the cluster lost the step")
        if type(why).__name__ == "KilledWorker":  # the scheduler has already tried several
            error = died(task.step, "the workers that ran it")
        self.arrivals.put((task, Outcome(error=error, lost=lost)))

    def _gather(self) -> None:
        """Bring results here, as many at once as have come: a message for each would cost more than a short step."""
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
        if hasattr(self, "_ended"):
            self._ended.put(None)
        with suppress(OSError, TimeoutError):
            self._client.close(timeout=5)
        if self._own is not None:
            with suppress(OSError, TimeoutError):
                self._own.close(timeout=10)
