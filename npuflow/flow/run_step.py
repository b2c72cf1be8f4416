"""Runs one batch of a step where its worker is: loads what the function needs, stores what it yields."""

from __future__ import annotations

import os
import re
import sysconfig
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from npuflow.base.code_loaded import LOADED
from npuflow.base.errors import BuildError, InternalError, NpuflowError
from npuflow.base.processors import PROCESSORS
from npuflow.base.registry import touching, untouched
from npuflow.flow.artifact import Artifact, ArtifactRef
from npuflow.flow.executor_code import OtherCode, StatedCode, edited_meanwhile, here, make_sure, unmixed
from npuflow.flow.executor_deaths import memory_hint
from npuflow.flow.memory import between_steps, peak
from npuflow.flow.refs import Files, ItemsRef
from npuflow.flow.stage import Groups, Items, Stage, listening
from npuflow.flow.store import Spec, Store, open_store
from npuflow.flow.store_files import Unwritable
from npuflow.flow.store_manifest import Damaged
from npuflow.flow.store_record import Record


class Work(NamedTuple):
    """One key to settle: the step itself, or one of its items."""

    key: str
    item: str | None = None
    own: Mapping[str, Any] | None = None
    """The item's own part of the pre-image."""
    sources: Mapping[str, Mapping[str, str]] = {}  # a plain one: it travels to other processes
    """For a stage that runs over collections: parameter -> the upstream items that it
    is made of -> their digests."""


class StoredArgument(NamedTuple):
    """An argument that is read from the store."""

    ref: ArtifactRef | ItemsRef
    kind: type[Artifact]


class Each(NamedTuple):
    """A parameter that receives the batch's items of a collection."""

    name: str
    kind: type[Artifact]
    grouped: bool = False
    whole: ItemsRef | None = None
    """The collection, for a stage that may look at all of it."""


@dataclass(slots=True)
class Task:
    """A batch on its way to a worker: digests and tables, never tensors."""

    spec: Spec
    step: str
    stage: Stage
    shared: Mapping[str, Any]
    work: list[Work]
    args: dict[str, Any]
    """Parameter -> table, `StoredArgument`, `Files`, or None for an optional product that is off."""
    each: list[Each]
    files: str | None
    kind: type[Artifact]
    scatter: bool
    reach: frozenset[str] = frozenset()
    """Registry entries that the key holds; the stage may use no other."""
    code: StatedCode | None = None
    """What the keys hold of code."""
    seen: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """File from outside the store -> its size and time when the keys were computed."""
    driver: str = ""
    """The process that computed the keys."""
    attempt: int = 0
    force: bool = False
    name: str = ""

    def codes(self) -> Iterator[StatedCode]:
        """What the keys hold of code: the step's, and that of items which name plug-ins of their own."""
        if self.code is None:
            return
        yield self.code
        own = [dict(one.own.get("plugins", {})) for one in self.work if one.own]
        for some in {frozenset(plugins.items()) for plugins in own if plugins}:
            yield self.code.with_plugins(dict(some))

    def __dask_tokenize__(self) -> str:
        """Its name says all; dask would otherwise walk the whole task to name the graph that carries it."""
        return self.name


class Done(NamedTuple):
    """A settled key."""

    key: str
    item: str | None
    ref: ArtifactRef | ItemsRef
    seconds: float
    ran: bool
    conflict: str | None
    summary: Mapping[str, Any]


@dataclass(slots=True)
class Outcome:
    """What came of a task: what it settled, and what ended it early."""

    done: list[Done] = field(default_factory=list)
    error: Exception | None = None
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Inputs that are missing or damaged, and how."""
    lost: bool = False
    """The worker died under it."""
    how: str = ""
    """How it died, where that is known."""
    worker: str = ""
    memory: int = 0
    """The process that ran it, and the most that this has had in memory, in bytes."""
    took: float = 0.0
    busy: float = 0.0
    """Seconds of the clock, and of the processor in its threads, which other load does not change."""
    fatal: bool = False
    """No later step can succeed: the cache cannot be written, or every worker is refused."""
    unfit: str = ""
    """Why the worker that had it must not run it: its code is not what the keys state."""
    address: str = ""
    """That worker, as its cluster calls it."""


def execute(task: Task) -> Outcome:
    """Settle a task's keys; what goes wrong is in the outcome, so that it survives any scheduler."""
    clock = time.perf_counter()
    with PROCESSORS.at_work() as spent:
        outcome = _executed(task)
    outcome.memory, outcome.took, outcome.busy = peak(), time.perf_counter() - clock, spent.seconds
    return outcome


def _executed(task: Task) -> Outcome:
    outcome = Outcome(worker=here())
    between_steps()
    try:
        unmixed()
        if task.driver != here():
            make_sure(task.step, task.codes())
        store = open_store(task.spec)
        _Batch(task, store, outcome).run()
    except OtherCode as refused:
        _refuse(task, outcome, str(refused))
    except Edited as edited:
        outcome.error, outcome.fatal = edited_meanwhile(edited.args), True
    except Unwritable as refused:
        outcome.error, outcome.fatal = refused, True
    except BaseException as fault:  # the boundary to the stage's own code, which may also call sys.exit()
        damage = _damage(fault)
        if damage is not None and damage.digest is not None:
            outcome.damaged = {damage.digest: damage.reason} | _flawed(task, open_store(task.spec))
        outcome.error = _explained(task, fault)
        try:  # what is mixed of two texts may fail in any way
            unmixed()
            _unchanged(task)
        except OtherCode as refused:
            _refuse(task, outcome, str(refused))
        except Edited as edited:
            outcome.error, outcome.fatal = edited_meanwhile(edited.args), True
    return outcome


class Edited(Exception):
    """Files that a task reads were edited since its keys were computed."""


def _unchanged(task: Task) -> None:
    """Raise `Edited` unless the files that a task reads are those that its keys hold."""
    changed = [path for path, mark in task.seen.items() if _size_and_time(path) != mark]
    if changed:
        raise Edited(*changed)


def _size_and_time(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  (hot: every file of every item)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _refuse(task: Task, outcome: Outcome, why: str) -> None:
    """Nothing that this process makes of a task may count."""
    outcome.unfit, outcome.error = why, None
    if task.driver == here():
        outcome.error, outcome.fatal = edited_meanwhile(LOADED.mixed() or [why]), True


class _Batch:
    """The state of one run of `execute`."""

    def __init__(self, task: Task, store: Store, outcome: Outcome) -> None:
        self.task, self.store, self.outcome = task, store, outcome
        self.lines: list[str] = []
        self.touched: set[str] = set()
        self.loaded: dict[int, tuple[Artifact, ArtifactRef]] = {}
        """Inputs by identity, and kept, so that no other object gets the number of one."""
        self.since = time.perf_counter()

    def run(self) -> None:
        task = self.task
        todo = {work.item: work for work in task.work if task.force or not self._known(work)}
        if not todo:
            return
        args = {name: self._argument(value, todo.values()) for name, value in task.args.items()}
        for each in task.each:
            args[each.name] = self._each(each, todo.values())
        with listening(self.lines.append), touching() as self.touched:
            self.since = time.perf_counter()
            made = task.stage.run(args)
            if task.scatter:
                self._scatter(todo[None], made)
            elif task.stage.over is None:
                self._settle(todo[None], made)
            else:
                self._yielded(todo, made)

    def _known(self, work: Work) -> bool:
        """Another build may have settled the key since this one looked."""
        record = self.store.record(work.key, remote=False)
        if record is None or not self.store.usable(record, remote=False):
            return False
        self.outcome.done.append(
            Done(work.key, work.item, record.ref, record.seconds, False, None, record.summary)
        )
        return True

    def _argument(self, value: Any, todo: Iterable[Work]) -> Any:
        if isinstance(value, StoredArgument):
            if isinstance(value.ref, ItemsRef):
                return _items(self.store, value.ref.items, value.kind)
            loaded = self.store.load(value.ref, value.kind)
            self.loaded[id(loaded)] = loaded, value.ref
            return loaded
        if isinstance(value, Files) and self.task.stage.over == "files":
            return Files({str(work.item): value[str(work.item)] for work in todo})
        return value

    def _each(self, each: Each, todo: Iterable[Work]) -> Items[Any] | Groups[Any]:
        members = {str(work.item): _refs(work.sources[each.name]) for work in todo}
        if each.grouped:
            return Groups({group: _items(self.store, refs, each.kind) for group, refs in members.items()})
        asked = {name: ref for refs in members.values() for name, ref in refs.items()}
        return _items(self.store, asked if each.whole is None else each.whole.items, each.kind, tuple(asked))

    def _yielded(self, todo: dict[str | None, Work], made: Any) -> None:
        # of a rectangle of pairs, what another build has settled
        known = {work.item for work in self.task.work} - set(todo)
        for item, artifact in made:
            work = todo.pop(item, None)
            if work is None and item in known:
                continue
            if work is None:
                raise BuildError(
                    f'the stage yielded the item "{item}", which it was not asked for', code="NF-STEP-008",
                )
            self._settle(work, artifact)
        if todo:
            missing = ", ".join(sorted(str(item) for item in todo))
            raise BuildError(
                f"the stage did not yield {missing}",
                hint="yield one artifact for every item it is given", code="NF-STEP-009",
            )

    def _scatter(self, work: Work, made: Any) -> None:
        items: dict[str, tuple[str, Any]] = {}
        for item, artifact in made:
            if item in items:
                raise BuildError(f'the stage yielded the item "{item}" twice', code="NF-STEP-010")
            self._checked(artifact)
            with untouched():
                ref = self.store.write(artifact)
            items[item] = ref.digest, ref.uses
        whole = ItemsRef({name: ArtifactRef(digest, uses) for name, (digest, uses) in items.items()})
        self._commit(work, whole.digest, {}, items, {})

    def _settle(self, work: Work, artifact: Any) -> None:
        self._checked(artifact)
        given = self.loaded.get(id(artifact))
        with untouched():
            # an input that is handed on is there already
            ref = self.store.write(artifact) if given is None else given[1]
            summary = artifact.summary()
        self._commit(work, ref.digest, ref.uses, None, summary)

    def _checked(self, artifact: Any) -> None:
        if stray := self.touched - self.task.reach:
            raise InternalError(
                f"{self.task.step} used {', '.join(sorted(stray))}, whose code is not in its key",
                because="after an edit of that code a later build would reuse this product",
                hint="name it in a table or in the uses() of an input, or by a constant: REGISTRY[\"name\"]",
                code="NF-STEP-003",
            )
        if not isinstance(artifact, self.task.kind):
            raise BuildError(
                f"the stage gave a {type(artifact).__name__} instead of a {self.task.kind.__name__}",
                code="NF-STEP-011",
            )

    def _commit(self, work: Work, output: str, uses: Any, items: Any, summary: Mapping[str, Any]) -> None:
        unmixed()  # what the stage imported late too
        _unchanged(self.task)
        clock = time.perf_counter()
        preimage = self.task.shared if work.item is None else {**self.task.shared, "item": work.own}
        record = Record(
            work.key, self.task.step, work.item, preimage, output, uses, items,
            clock - self.since, "\n".join(self.lines), dict(summary),
        )
        kept, other = self.store.commit(record)
        done = Done(work.key, work.item, kept.ref, record.seconds, True, other, kept.summary)
        self.outcome.done.append(done if other is None else done._replace(conflict=f"{other} and {output}"))
        self.since, self.lines[:] = time.perf_counter(), []


def _refs(digests: Mapping[str, str]) -> dict[str, ArtifactRef]:
    return {name: ArtifactRef(digest) for name, digest in digests.items()}


def _items(
    store: Store, refs: Mapping[str, ArtifactRef], kind: type[Artifact], asked: tuple[str, ...] | None = None
) -> Items[Any]:
    def load(ref: ArtifactRef) -> Artifact:
        with untouched():
            return store.load(ref, kind)

    return Items({name: partial(load, ref) for name, ref in refs.items()}, asked)


def _damage(fault: BaseException | None) -> Damaged | None:
    """The damaged input behind a fault, however the stage wrapped it."""
    seen: set[int] = set()
    while fault is not None and id(fault) not in seen:
        if isinstance(fault, Damaged):
            return fault
        seen.add(id(fault))
        fault = fault.__cause__ or fault.__context__
    return None


def _flawed(task: Task, store: Store) -> dict[str, str]:
    """All inputs of a task that are missing or damaged, and how: damage seldom comes alone, and to find it
    one by one would run the task as often."""
    found: set[str] = set()
    for value in task.args.values():
        if isinstance(value, StoredArgument):
            refs = value.ref.items.values() if isinstance(value.ref, ItemsRef) else (value.ref,)
            found.update(ref.digest for ref in refs)
    for each in task.each:
        found.update(digest for work in task.work for digest in work.sources[each.name].values())
        if each.whole is not None:
            found.update(ref.digest for ref in each.whole.items.values())
    return {digest: reason for digest in sorted(found) if (reason := store.flawed(digest))}


_REFUSED = re.compile(
    r"bad allocation|bad_alloc|Failed to allocate memory|Unable to allocate|Cannot allocate memory"
)
"""What native libraries say that were given no memory, in exceptions of their own."""
_LIBRARY = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), "<")


def _place(fault: BaseException) -> str:
    """Where it happened, as far down as the code is the stage's own and not a library's."""
    frames = traceback.extract_tb(fault.__traceback__)
    own = [one for one in frames if not one.filename.startswith(_LIBRARY) and one.filename != __file__]
    last = (own or frames)[-1:]
    return f"{last[0].filename}:{last[0].lineno} in {last[0].name}" if last else ""


def _explained(task: Task, fault: BaseException) -> NpuflowError:
    """The fault as an error that names the stage, and the item when there is only one."""
    item = task.work[0].item if len(task.work) == 1 else None
    if isinstance(fault, MemoryError) or _REFUSED.search(str(fault)):
        because = next(iter(str(fault).splitlines()), "")     # numpy says how much it asked for
        error: NpuflowError = BuildError(
            f"{task.step} ran out of memory", because=because, hint=memory_hint(task.stage.lighter),
            code="NF-STEP-002",
        )
    elif isinstance(fault, NpuflowError):
        return fault.at(stage=task.step, item=item)
    else:
        text = f"{type(fault).__name__}: {fault}" if str(fault) else type(fault).__name__
        error = BuildError(f"{task.step} failed: {text}", because=_place(fault), code="NF-STEP-001")
    error.trace = "".join(traceback.format_exception(fault))  # type: ignore[attr-defined]
    return error.at(stage=task.step, item=item)
