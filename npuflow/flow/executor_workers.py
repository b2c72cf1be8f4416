"""Which workers of a dask cluster may take a build's work, and what became of the others."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from npuflow.base.code import save_memo
from npuflow.base.code_loaded import LOADED
from npuflow.base.errors import BuildError
from npuflow.flow import store_files as files
from npuflow.flow.executor_code import installed, stated
from npuflow.flow.executor_deaths import UNKNOWN, Deaths, none_left
from npuflow.flow.executor_probe import ProbeAnswer, Question, ask, told
from npuflow.flow.memory import shown
from npuflow.flow.plan import Plan
from npuflow.flow.store import Store

LOOK = 0.5  # seconds between two looks at who has joined or gone
ROUNDS = 3  # times that a worker may leave the probe unanswered, and that all may die in it
RETURN = 10.0  # seconds within which a nanny starts a worker anew
NOTICE = 5.0  # seconds within which a nanny reports how its worker ended


class Workers:
    """The workers of one cluster: those that would do the same as the driver get work."""

    def __init__(self, client: Any, plan: Plan, store: Store, deaths: Deaths, *, own: bool) -> None:
        self._client, self._plan, self._store, self._deaths, self._own = client, plan, store, deaths, own
        self.good: set[str] = set()
        self.refused: dict[str, list[str]] = {}
        """Worker -> what differs there."""
        self._silent: Counter[str] = Counter()

    def first(self) -> None:
        """Find the first workers that may take work; those that die while they are asked
        come back and are asked again."""
        for _ in range(ROUNDS):
            self.look()
            if self.good or not (self._silent or self._deaths.ways) or not self._returned():
                break
        if self.good:
            return
        for worker in self._silent.keys() - self.refused.keys() - self._deaths.ways.keys():
            self._gone(worker)
        raise self.none_left() if self._deaths.ways and not self.refused else self.none_fit()

    def none_fit(self) -> BuildError:
        """That every worker was refused, or that there is none."""
        alike: dict[str, list[str]] = {}
        for worker, why in self.refused.items():
            alike.setdefault("; ".join(why), []).append(worker)
        text = "; ".join(f"{', '.join(workers)}: {why}" for why, workers in alike.items())
        hint = "do what each line says, then run the same command again: what is finished is kept"
        return BuildError(
            "no worker of the cluster can do this build",
            because=text or "it has none",
            code="NF-CLUSTER-002",
            hint=hint if text else "start some: dask worker ADDRESS",
        )

    def _returned(self) -> bool:
        """Whether a worker is there that has not answered yet, after giving nannies
        the time to start one anew."""
        known = {*self.good, *self.refused, *self._deaths.ways}
        until = time.monotonic() + RETURN
        while True:
            time.sleep(LOOK)  # the scheduler takes a moment to notice a death
            if self._workers().keys() - known:
                return True
            if time.monotonic() > until:
                return False

    def _workers(self) -> dict[str, Any]:
        """The workers of the cluster as its scheduler knows them now."""
        found: dict[str, Any] | None = self._client.scheduler_info(n_workers=-1).get("workers")
        if found is None:  # what dask gives when the connection is lost
            raise self.lost()
        self._deaths.limits.update(
            {name: one["memory_limit"] for name, one in found.items() if one.get("memory_limit")}
        )
        return found

    def look(self) -> None:
        """Ask every worker that has not answered yet, and report those that are gone.

        Those that differ get no work, and the reason is reported; one that does not
        answer is asked again, or has died.
        """
        there = self._workers()
        for worker in [name for name in self.good if name not in there]:
            self.good.discard(worker)
            self._gone(worker)
        fresh = [one for one in there if one not in self.good and one not in self.refused]
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
                self._judge(worker, answer, question)
            elif worker not in there:
                self._gone(worker)
            else:  # lost on the way, or its end is not known yet
                self._silent[worker] += 1
                if self._silent[worker] >= ROUNDS:
                    self.refuse(
                        worker,
                        f"it does not answer ({answer}): look at its log, and whether it can be reached",
                    )

    def _judge(self, worker: str, answer: Any, question: Question) -> None:
        """A worker without faults gets work; another is refused with what differs."""
        if isinstance(answer, MemoryError):
            self.refuse(
                worker, "it ran out of memory when it was asked: give it more (dask worker --memory-limit)"
            )
        elif not isinstance(answer, ProbeAnswer):
            own = installed()
            text = f"it cannot run this npuflow ({answer}): install npuflow {own.version} there"
            self.refuse(worker, text)
        elif answer.fine:
            self.good.add(worker)
        else:
            self.refuse(worker, *told(answer, question.steps, installed(), LOADED.edited()))

    def refuse(self, worker: str, *why: str) -> None:
        """Give a worker no more work."""
        self.good.discard(worker)
        self.refused[worker] = list(why)
        self._store.warn(f"worker {worker} is refused: {'; '.join(why)}")

    def remedy(self) -> str:
        """What to do where a worker's code differs from what keys state though it was equal before."""
        if LOADED.edited():
            return "run the build again"
        return "restart the worker, then run the build again"

    def _gone(self, worker: str) -> None:
        how = self._deaths.of(worker, self._client.get_events)
        if self._own:
            return  # its tasks come back, each with a warning
        text = f"worker {worker} died: {how}" if how else f"worker {worker} is gone: {UNKNOWN}"
        self._store.warn(f"{text}; its unfinished work is rescheduled")

    def limits(self) -> dict[str, int]:
        """Worker -> the memory that it may take; those without a limit are left out."""
        workers = self._workers()
        return {name: found for name in self.good if (found := workers.get(name, {}).get("memory_limit"))}

    def _question(self) -> Question:
        steps, libraries = {}, {}
        for step in self._plan:
            if step.override is None:
                steps[step.name] = stated(step)
                libraries.update({k: v for k, v in step.fixed["libraries"].items() if isinstance(v, str)})
        save_memo()  # what the driver drew already
        token = files.fresh(self._store.root / "tmp", "probe-").name
        return Question(str(self._store.root), token, steps, libraries, installed())

    def able(self, step: str, need: int) -> dict[str, Any] | None:
        """Which workers may take a step: those that were found equal to the driver, and have the memory it
        needs. None: there is none at the moment; the step waits for one, or the watch gives up."""
        if not self.good and not self.refused:
            return {} if self._own else None
        small = {name for name, limit in self.limits().items() if limit < need} if need else set()
        able = sorted(self.good - small)
        if not self.good:
            raise self.none_left()
        if not able:
            raise BuildError(
                f"{step} needs {shown(need)} of memory, which no worker of the cluster has",
                hint="start a worker with more (dask worker --memory-limit), or a smaller batch",
                code="NF-STEP-002",
            )
        # to a joined cluster anybody's workers may come at any moment
        narrow = self.refused or small or not self._own
        return {"workers": able, "allow_other_workers": False} if narrow else {}

    def way(self, worker: str) -> str:
        """How a worker ended, empty where that is not known."""
        how = self._deaths.ways.get(worker, UNKNOWN)
        return "" if how == UNKNOWN else how

    def how(self, killed: Any) -> str:
        """How the last worker of a step ended, where it can be known."""
        worker = str(getattr(getattr(killed, "last_worker", None), "address", ""))
        until = time.monotonic() + NOTICE
        while True:
            how = self._deaths.of(worker, self._client.get_events)
            # a nanny ends a worker with SIGTERM, and why it did arrives after the death
            if not self._own or (how and "SIGTERM" not in how):
                return how
            if time.monotonic() > until:
                return how or self._deaths.last()
            time.sleep(0.05)

    def none_left(self) -> BuildError:
        """That every worker died, with what is known of their ends."""
        return none_left(self._deaths.ways, own=self._own)

    def lost(self) -> BuildError:
        """That the scheduler does not answer any more."""
        hint = "start it again, then run the same command: what is finished is kept"
        return BuildError(
            "the connection to the scheduler of the cluster was lost",
            hint=hint,
            code="NF-CLUSTER-001",
        )
