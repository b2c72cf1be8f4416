"""Which workers of a dask cluster may take a build's work, and what became of the others.

A worker has to answer first whether it would do the same as the driver.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from npuflow.base.code import forget, open_memo, save_memo
from npuflow.base.code_loaded import LOADED
from npuflow.base.errors import BuildError
from npuflow.flow import store_files as files
from npuflow.flow.executor_code import Installed, StatedCode, differing, edits, installed, stated
from npuflow.flow.executor_deaths import UNKNOWN, Deaths, none_left, rests
from npuflow.flow.memory import shown
from npuflow.flow.plan import Plan
from npuflow.flow.store import Store

Definitions = dict[str, str]
"""Module and definition ("npuflow.ops.relu:Relu.run") -> its digest."""


class Question(NamedTuple):
    """What a worker has to answer before it is given work."""

    root: str
    token: str
    steps: Mapping[str, StatedCode]
    libraries: Mapping[str, str]
    installed: Installed | None = None


class ProbeAnswer(NamedTuple):
    """What a worker found."""

    faults: list[str]
    """What differs there and what to do about it, in words for users."""
    differ: dict[str, Definitions]
    """Code of another digest than the driver's, by what users call it, with what it consists of there."""
    installed: Installed

    @property
    def fine(self) -> bool:
        return not self.faults and not self.differ


def ask(question: Question) -> ProbeAnswer:
    """Run on a worker: what differs here from the driver."""
    faults, differ = _installed(question.installed), dict[str, Definitions]()
    if not faults:
        faults += _code(question, differ)
    faults += _libraries(question.libraries)
    return ProbeAnswer([*faults, *_cache(Path(question.root), question.token)], differ, installed())


def _installed(wanted: Installed | None) -> list[str]:
    """Another release of npuflow, or another text of the build system: nothing else needs to be compared."""
    own = installed()
    if old := LOADED.outdated():
        return [f"{edits(old)} edited after this worker had loaded it: restart the worker"]
    if wanted is None or own[::2] == wanted[::2]:
        return []
    if own.version != wanted.version:
        theirs = f"npuflow {wanted.version}"
        return [f"it runs {own}, and the driver {theirs}: install {theirs} there"]
    return [f"the build system differs ({own}, and the driver's in {wanted.folder}): install the same there"]


def _code(question: Question, differ: dict[str, Definitions]) -> list[str]:
    """Compare the code of all steps; what differs is noted, what is not there is a fault."""
    if LOADED.edited():
        forget()  # files that were read for an earlier build, and not loaded
    open_memo(Path(question.root) / "memo")
    faults: list[str] = []
    for name, wanted in question.steps.items():
        try:
            import_module(wanted.module)
            found = differing(wanted)
        except Exception as fault:  # whatever keeps code from being found there is the answer
            text = f"the code of {name} cannot be imported ({fault}): install the driver's packages there"
            faults.append(text)
            continue
        for label, code in found.items():
            differ[label] = code.definitions
    return faults


def _libraries(wanted: Mapping[str, str]) -> list[str]:
    from importlib import metadata

    from npuflow.flow.processor import processor

    faults: list[str] = []
    for library, version in wanted.items():
        # stages of float results: the feature class that their keys state
        if library == "cpu":
            if (own := processor()) != version:
                faults.append(f"its processor ({own}) computes floats unlike the driver's ({version})")
            continue
        remedy = f"pip install {library}=={version}"
        with suppress(metadata.PackageNotFoundError):
            if (found := metadata.version(library)) != version:
                faults.append(f"it has {library} {found}, not {version}: {remedy}")
            continue
        faults.append(f"it has no {library}: {remedy}")
    return faults


def _cache(root: Path, token: str) -> list[str]:
    """Whether the driver's cache is here, and can be written."""
    probe = root / "tmp" / token
    try:
        seen = probe.read_text()
        made = files.fresh(probe.parent, token + "-answer")
        made.write_text(seen)
        made.unlink()
    except OSError as fault:
        hint = "mount the cache there at the same path, or choose another with --cache"
        return [f"it cannot use the cache {root} ({fault.strerror}): {hint}"]
    if seen != token:
        return [f"it reads another folder at {root}: mount the driver's cache there"]
    return []


def told(
    answer: ProbeAnswer, steps: Mapping[str, StatedCode], ours: Installed, edited: Collection[str]
) -> list[str]:
    """The driver's words for an answer. `edited`: sources that were edited since the driver read them."""
    texts = list(answer.faults)
    if answer.differ:
        own = _own_definitions(steps)
        parts = sorted(
            {
                name
                for there in answer.differ.values()
                for name in there
                if name in own and own[name] != there[name]
            }
        )
        labels = sorted(answer.differ)
        more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
        first = f" ({_named(parts[0])})" if parts else ""
        what = f"the code of {', '.join(labels[:3])}{more} differs{first}"
        if edited:
            remedy = f"{edits(sorted(edited))} edited after this build had read it: run the build again"
        elif answer.installed.folder == ours.folder:
            remedy = "restart the worker, and install the same plug-in packages there"
        else:
            both = f"it runs {answer.installed}, the driver {ours}"
            remedy = f"install the same npuflow and plug-ins there ({both})"
        texts.append(f"{what}: {remedy}")
    return texts


def _named(part: str) -> str:
    """A definition as users know it; of a registry, keys hold the names of its entries."""
    return f"there are other {part[:-1]}: plug-in packages" if part.endswith("/") else part


def _own_definitions(steps: Mapping[str, StatedCode]) -> Definitions:
    """What the code of all steps consists of in this process."""
    from npuflow.base.code import definition_closure
    from npuflow.flow.executor_code import plugins_of

    found: Definitions = {}
    for one in steps.values():
        code = definition_closure(one.module, one.name)
        found.update(code.definitions)
        for closure in plugins_of(code, one.selected, one.named).values():
            found.update(closure.definitions)
    return found


LOOK = 0.5  # seconds between two looks at who has joined or gone
ROUNDS = 3  # times that a worker may leave the probe unanswered, and that all may die in it
RETURN = 10.0  # seconds within which a nanny starts a worker anew
NOTICE = 5.0  # seconds within which a nanny reports how its worker ended
ANSWERED = 30.0  # seconds within which a scheduler answers
PROBED = 400.0  # seconds within which workers answer; a scheduler gives up those that are silent for 300


class Workers:
    """The workers of one cluster: those that would do the same as the driver get work."""

    def __init__(self, client: Any, plan: Plan, store: Store, deaths: Deaths, *, own: bool) -> None:
        self._client, self._plan, self._store, self._deaths, self._own = client, plan, store, deaths, own
        self.good: set[str] = set()
        self.refused: dict[str, list[str]] = {}
        """Worker -> what differs there."""
        self.resting: set[str] = set()  # those that dask has paused while they run nothing
        self._silent: Counter[str] = Counter()

    def first(self) -> None:
        """Find the first workers that may take work; those that die over it are asked again, come back."""
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
        scheduler = self._client.scheduler
        if scheduler is None:  # what dask's client has when it has given up
            raise self.lost()
        try:
            found: dict[str, Any] = self._answer(scheduler.identity, n_workers=-1)["workers"]
        except OSError:
            raise self.lost() from None
        self._deaths.limits.update(
            {name: one["memory_limit"] for name, one in found.items() if one.get("memory_limit")}
        )
        return found

    def _answer(self, question: Callable[..., Any], *args: Any, limit: float = 0, **more: Any) -> Any:
        """What a coroutine of dask's gives: a TimeoutError where a scheduler stands still."""

        async def asked() -> Any:
            return await question(*args, **more)

        return self._client.sync(asked, callback_timeout=limit or ANSWERED)

    def _events(self, topic: str) -> Any:
        return self._answer(self._client.scheduler.events, topic=topic)

    def look(self) -> None:
        """Ask every worker that has not answered yet, and report those that are gone.

        Those that differ get no work, and the reason is reported; one that does not
        answer is asked again, or has died.
        """
        there = self._workers()
        self.resting = {name for name in self.good if rests(there.get(name, {}))}
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
            own = {"workers": fresh, "on_error": "return", "asynchronous": True}
            answers = self._answer(self._client.run, ask, question, limit=PROBED, **own)
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
        how = self._deaths.of(worker, self._events)
        if self._own:
            return  # its tasks come back, each with a warning
        text = f"worker {worker} died: {how}" if how else f"worker {worker} is gone: {UNKNOWN}"
        self._store.warn(f"{text}; its unfinished work is rescheduled")

    def limits(self) -> dict[str, int]:
        """Worker -> the memory that it may take; those without a limit are left out."""
        good, workers = set(self.good), self._workers()
        return {name: found for name in good if (found := workers.get(name, {}).get("memory_limit"))}

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
        good = set(self.good)  # the watch changes it, also while the scheduler states limits
        if not good and not self.refused:
            return {} if self._own else None
        if not good:
            raise self.none_left()
        small = {name for name, limit in self.limits().items() if limit < need} if need else set()
        if not (able := sorted(good - small)):
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
            how = self._deaths.of(worker, self._events)
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
