"""Where one step of a plan stands while a build runs."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from npuflow.base.errors import InternalError, NpuflowError
from npuflow.base.files import DIGESTS
from npuflow.base.html_table import titled
from npuflow.base.tables import FilePath
from npuflow.flow.artifact import ArtifactRef
from npuflow.flow.events import Progress
from npuflow.flow.executor_code import here, stated
from npuflow.flow.keys import Bound, Step
from npuflow.flow.refs import Files, ItemsRef, Ref, parts
from npuflow.flow.run_step import Each, StoredArgument, Task, Work
from npuflow.flow.signature import named_paths
from npuflow.flow.store import Spec, Store


@dataclass
class Pace:
    """Figures of one stage while it runs."""

    begun: float | None = None
    ran: int = 0
    shard: int = 0
    seconds: float = 0.0
    """From the first task handed out to the last one come back."""
    workers: dict[str, int] = field(default_factory=dict)
    """Worker -> the most memory that it has taken, in bytes."""

    def begin(self) -> None:
        """A task is handed out."""
        if self.begun is None:
            self.begun = time.perf_counter()

    def took(self, shard: int, ran: int, worker: str, memory: int) -> None:
        """A task has come back."""
        self.ran += ran
        self.shard = max(self.shard, shard)
        self.seconds = time.perf_counter() - (self.begun or 0.0) if self.begun is not None else 0.0
        if worker:
            self.workers[worker] = max(self.workers.get(worker, 0), memory)

    @property
    def rate(self) -> float:
        return self.ran / self.seconds if self.seconds else 0.0

    @property
    def memory(self) -> int:
        return max(self.workers.values(), default=0)


ATTEMPTS = 3


@dataclass
class Result:
    """What a build did. `refs` and `keys` say what every step gave, and under which key."""

    hit: int = 0
    ran: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    refs: dict[str, Ref] = field(default_factory=dict)
    keys: dict[str, dict[str | None, str]] = field(default_factory=dict)
    status: dict[str, dict[str | None, str]] = field(default_factory=dict)
    errors: list[NpuflowError] = field(default_factory=list)
    products: dict[str, Path] = field(default_factory=dict)

    @property
    def outputs(self) -> dict[str, str]:
        return {stage: ref.digest for stage, ref in self.refs.items()}

    @property
    def ok(self) -> bool:
        return not self.errors

    def __repr__(self) -> str:
        """A line: keys and digests of all steps are thousands of them."""
        counts = ", ".join(f"{getattr(self, name)} {name}" for name in ("ran", "hit", "failed", "skipped"))
        products = ", ".join(str(path) for _, path in sorted(self.products.items()))
        return f"<Result {counts}{': ' if products else ''}{products}>"

    def _repr_html_(self) -> str:
        """For notebooks: what ran, and where the products are."""
        counts = {name: getattr(self, name) for name in ("ran", "hit", "failed", "skipped", "seconds")}
        rows = [{"product": name, "file": str(path)} for name, path in sorted(self.products.items())]
        return titled("build failed" if self.errors else "build", counts, rows)

    def check(self) -> Result:
        """This result, or the first error that spoilt it."""
        if self.errors:
            raise self.errors[0]
        return self


@dataclass
class StepState:
    """A step between the moment its inputs are known and the moment its product is."""

    step: Step
    ref: Ref | None = None
    bound: Bound | None = None
    keys: dict[str | None, str] = field(default_factory=dict)
    """Item -> key."""
    found: dict[str | None, Ref] = field(default_factory=dict)
    """Item -> product, as they come."""
    pending: dict[str, str | None] = field(default_factory=dict)
    """Key -> item of what is still to be settled."""
    failed: dict[str | None, Exception] = field(default_factory=dict)
    skipped: str = ""
    status: dict[str | None, str] = field(default_factory=dict)
    hits: int = 0
    attempts: dict[str, int] = field(default_factory=dict)
    causes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(key, damaged input or lost worker) -> how often that undid it."""
    pace: Pace = field(default_factory=Pace)
    forced: set[str] = field(default_factory=set)
    """Keys that a forced build has run already."""

    @property
    def over(self) -> bool:
        return self.step.over is not None

    @property
    def begun(self) -> bool:
        return self.bound is not None

    @property
    def over_with(self) -> bool:
        """Nothing more will come of this step."""
        return (
            self.ref is not None
            or bool(self.skipped)
            or (self.begun and bool(self.failed) and not self.pending)
        )

    def progress(self) -> Progress:
        pace = self.pace
        figures = pace.rate, pace.shard, len(pace.workers), pace.memory
        return Progress(self.step.name, len(self.found), len(self.keys), self.hits, *figures)

    def begin(self, bound: Bound) -> None:
        """Its inputs are known, and with them its keys; those of a step that begins again stay in order."""
        self.bound = bound
        ids: tuple[str | None, ...] = (None,) if bound.ids is None else bound.ids
        self.keys = {item: bound.key(item) for item in ids}

    def adopt(self, ref: Ref) -> None:
        """Take a product that the user gave."""
        self.ref = self.found[None] = ref

    def settle(self, key: str, item: str | None, ref: Ref, *, forced: bool = False) -> bool:
        """Take the product of a key; False if it answers a question that is no longer asked."""
        self.pending.pop(key, None)
        if self.keys.get(item) != key:
            return False
        self.found[item] = ref
        if forced:
            self.forced.add(key)
        return True

    def undone(self, cause: str, keys: Iterable[str] = ("",)) -> bool:
        """Note a damaged input or a lost worker that undid some keys; whether another attempt is worth it.
        Each attempt has a name of its own."""
        counts = []
        for key in keys:
            self.attempts[key] = self.attempts.get(key, 0) + 1
            self.causes[key, cause] += 1
            counts.append(self.causes[key, cause])
        return max(counts) < ATTEMPTS

    def again(self, keys: Iterable[str]) -> None:
        """Some keys need another attempt, and nothing of theirs is to blame."""
        for key in keys:
            self.attempts[key] = self.attempts.get(key, 0) + 1

    def fail(self, item: str | None, error: Exception) -> None:
        """An item will not get a product, or the step itself."""
        self.failed[item] = error
        self.pending.pop(self.keys.get(item, ""), None)
        if not self.begun:
            self.skipped = "failed"

    def note(self, item: str | None, status: str) -> bool:
        """Note how an item ended; False if that was reported before: one that is looked up again after a
        repair is reported only if it ran."""
        known = self.status.get(item)
        if known is not None and (status == "hit" or status == known == "ran"):
            return False
        self.hits += (status == "hit") - (known == "hit")
        self.status[item] = status
        return True

    def reset(self) -> None:
        """Forget what was found, so that the step looks its keys up again."""
        self.ref, self.bound = None, None
        self.found.clear()
        self.pending.clear()

    def made(self, digest: str | None) -> bool:
        """Whether an object is among what the step gave."""
        found = (
            one
            for ref in self.found.values()
            for one in (ref.items.values() if isinstance(ref, ItemsRef) else (ref,))
        )
        return any(one.digest == digest for one in found)

    def conclude(self) -> None:
        """Give the step its product once nothing is pending."""
        if self.pending or self.failed or not self.begun:
            return
        if not self.over:
            self.ref = self.found[None]
            return
        ordered: dict[str, ArtifactRef] = {}
        for item in self.keys:
            ref = self.found[item]
            if not isinstance(ref, ArtifactRef):
                raise InternalError(
                    f"{self.step.name}: an item cannot be a collection", code="NF-INTERNAL-026",
                )
            ordered[str(item)] = ref
        self.ref = ItemsRef(ordered)


Size = Callable[[int], int]
"""How many of the items that are left go into the next batch."""
SPREAD, LEAST = 2, 8
# workers for each of which an item more goes into a batch: a scheduler hands out some 400 a second
CROWD = 16


def shares(most: int, number: int, workers: int) -> Size:
    """Batches of a step of so many items: a part of each worker's share of what is left, so that large
    ones go first and all workers end together; but `most` at a time, and not much less where there are
    enough to keep every worker busy."""
    least = min(most, max(-(-most // LEAST), workers // CROWD), -(-number // workers))
    return lambda left: most if workers == 1 else max(least, min(most, -(-left // (SPREAD * workers))))


def batches(state: StepState, keys: Mapping[str, str | None], size: Size) -> Iterator[list[Work]]:
    """The keys of a step as work, some items a batch, each with its own part; pairs in full rectangles."""
    for some in _rows(state.step, keys, size):
        yield [_work(state, key, item) for key, item in some]


def _rows(step: Step, keys: Mapping[str, str | None], size: Size) -> Iterator[list[tuple[str, str | None]]]:
    if step.by is None:
        walk, left = iter(keys.items()), len(keys)
        while some := list(islice(walk, size(left))):
            yield some
            left -= len(some)
        return
    lacks: dict[str, dict[str, str]] = {}                     # item of `over` -> its items of `by` -> key
    for key, item in keys.items():
        by, over = parts(str(item))
        lacks.setdefault(over, {})[by] = key
    alike: dict[tuple[str, ...], deque[str]] = {}
    for over, mine in lacks.items():
        alike.setdefault(tuple(mine), deque()).append(over)
    left = len(lacks)
    for overs in alike.values():
        while overs:
            taken = [overs.popleft() for _ in range(min(len(overs), size(left)))]
            left -= len(taken)
            yield [(key, keys[key]) for over in taken for key in lacks[over].values()]


def units(step: Step, items: Iterable[str | None]) -> int:
    """How many items a batch could be divided into: pairs of one item of `over` stay together."""
    return len({parts(str(item))[1] if step.by is not None else item for item in items})


def _work(state: StepState, key: str, item: str | None) -> Work:
    if state.bound is None:
        raise InternalError(
            f"{state.step.name} is asked for work before its inputs are known", code="NF-INTERNAL-027",
        )
    if item is None:
        return Work(key)
    made_of = state.bound.sources(item)
    sources = {name: {one: ref.digest for one, ref in members.items()} for name, members in made_of.items()}
    return Work(key, item, state.bound.item(item), sources)


def _reach(bound: Bound, batch: list[Work]) -> frozenset[str]:
    """What the stage may use of registries: what its key holds."""
    return bound.reach.union(*(bound.reach_of(one.item) for one in batch if one.item is not None))


def _seen(step: Step, files: Files | None) -> dict[str, tuple[int, int]]:
    """The files that a step reads from outside the store, as they were when its keys were computed."""
    paths = [path for item in (files or {}).values() for path in item.files]
    for config in step.configs.values():
        paths += [one.path for one in named_paths(config) if isinstance(one, FilePath)]
    found = {os.path.abspath(path): DIGESTS.seen(path) for path in paths}  # noqa: PTH100
    return {path: mark for path, mark in found.items() if mark is not None}


def task(
    state: StepState, refs: Mapping[str, Ref | None], batch: list[Work], spec: Spec, **more: Any
) -> Task:
    """A batch of a step, ready to travel."""
    bound, step = state.bound, state.step
    if bound is None:
        raise InternalError(f"{step.name} is sent off before its inputs are known", code="NF-INTERNAL-028")
    args: dict[str, Any] = dict(step.configs)
    each = []
    for name, place in step.inputs.items():
        ref = refs[name]
        if place.each:
            whole = ref if place.upstream.whole and isinstance(ref, ItemsRef) else None
            each.append(Each(name, place.upstream.kind, place.upstream.grouped, whole))
        else:
            args[name] = None if ref is None else StoredArgument(ref, place.upstream.kind)
    files = step.signature.files
    if files is not None:
        listing = step.listing or {}
        wanted = [str(one.item) for one in batch] if step.over == "files" else list(listing)
        args[files] = Files({name: listing[name] for name in wanted})
    return Task(
        spec,
        step.name,
        step.stage,
        bound.shared,
        batch,
        args,
        each,
        files,
        step.signature.output,
        step.signature.product == "items" and not state.over,
        reach=_reach(bound, batch),
        code=stated(step, bound),
        seen=_seen(step, args.get(files) if files is not None else None),
        driver=here(),
        **more,
    )


def adopted(step: Step, store: Store) -> Ref:
    """The product of a step that a folder overrides, taken into the cache."""
    kind, folder = step.signature.output, Path(str(step.override))
    if step.signature.product != "items":
        return store.adopt(folder, kind)
    return ItemsRef({one.name: store.adopt(one, kind) for one in sorted(folder.iterdir()) if one.is_dir()})
