"""A plan without a build: what is in the cache, what would run, and what early cutoff may still spare."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from npuflow.base.errors import UsageError
from npuflow.flow.ahead import Ahead
from npuflow.flow.artifact import Artifact, ArtifactRef, Manifest, Reader
from npuflow.flow.explain import Reason, why
from npuflow.flow.keys import Bound, Step, pairs
from npuflow.flow.lock import Lock, LockedStep, fields_of
from npuflow.flow.plan import Plan
from npuflow.flow.refs import ItemsRef, Ref, groups
from npuflow.flow.store import Store
from npuflow.flow.store_manifest import MANIFEST
from npuflow.flow.store_record import Record

Status = Literal["hit", "run", "maybe"]


@dataclass(frozen=True)
class PlannedStep:
    """What a build would do with a step, or with one item of it."""

    stage: str
    item: str | None
    key: str | None
    status: Status
    reason: str
    seconds: float = 0.0
    """What the step took when it ran, for a hit."""
    output: str | None = None


@dataclass
class Dry:
    """A planned build; `current` is the lock as far as it can be known before building."""

    steps: list[PlannedStep]
    current: Lock
    old: Lock
    sources: dict[str, dict[str, str]]

    def why(self, stage: str) -> Reason:
        """Why a stage would run: what changed since the last build."""
        return why(stage, self.old, self.current, self.sources)


@dataclass(frozen=True)
class _Known:
    """What is known of a step's product: all of it, some items of it, or nothing."""

    ref: Ref | None
    missing: tuple[str, ...] | None = ()
    """Items whose product is not known yet; None when not even the ids are."""
    ids: tuple[str, ...] | None = None
    """All items in order, where some are missing."""

    @property
    def items(self) -> tuple[str, ...]:
        return (
            self.ids
            if self.ids is not None
            else tuple(self.ref.items)
            if isinstance(self.ref, ItemsRef)
            else ()
        )

    @property
    def whole(self) -> bool:
        return self.missing == ()


_NOTHING = _Known(None, None)


def dry(
    plan: Plan, store: Store, old: Lock | None = None, force: Collection[str] = (),
    ahead: Ahead | None = None, *, reasons: bool = True,
) -> Dry:
    """Look every key up that can be known without running anything, or `ahead`: anything but quick stages,
    in memory; several plans may share what these made. Without `reasons` it is not said why steps would run,
    and the lock has no fields."""
    return _Planner(plan, store, old or Lock(), plan.forced(force), ahead, reasons=reasons).run()


class _Planner:
    def __init__(
        self, plan: Plan, store: Store, old: Lock, force: frozenset[str], ahead: Ahead | None, *,
        reasons: bool,
    ) -> None:
        self.force, self.ahead, self.reasons = force, ahead, reasons
        sources = {s.name: {p: i.step for p, i in s.inputs.items() if i.step is not None} for s in plan}
        self.plan, self.store, self.old = plan, store, old
        self.known: dict[str, _Known] = {}
        self.dry = Dry([], Lock(), old, sources)

    def run(self) -> Dry:
        for step in self.plan:
            self.known[step.name] = self._step(step)
        return self.dry

    def _step(self, step: Step) -> _Known:
        if step.override is not None:
            ref = adopted(step.override, step.signature.output)
            self.dry.current.steps[step.name] = LockedStep(ref.digest, ref.digest, {"override": ref.digest})
            self._tell(step, None, None, "hit", f"taken from {step.override}", ref=ref)
            return _Known(ref)
        if self.reasons:
            self.dry.current.reaches(step)
        feeds = {
            name: _Known(None) if i.step is None else self.known[i.step] for name, i in step.inputs.items()
        }
        over = [name for name in (step.over, step.by) if name in step.inputs]
        unknown = {
            name for name in feeds if feeds[name].missing is None or not (feeds[name].whole or name in over)
        }
        waiting = [str(step.inputs[name].step) for name in unknown]
        ids = None if unknown.intersection(over) else self._ids(step, feeds)
        if waiting:
            return self._waits(step, waiting, ids)
        load = self.store.load if self.ahead is None else self.ahead.load
        bound = step.bind({name: feed.ref for name, feed in feeds.items()}, load)
        if step.over in feeds and step.inputs[step.over].upstream.grouped:
            # of all items, also those not made yet
            bound.regroup(groups(feeds[step.over].items, step.name))
        locked = LockedStep(bound.key(), "", fields_of(step, bound.shared) if self.reasons else {})
        self.dry.current.steps[step.name] = locked
        if ids is None:
            return self._single(step, bound, locked)
        return self._fan(step, bound, ids, {name: set(feeds[name].missing or ()) for name in over}, locked)

    def _ids(self, step: Step, feeds: Mapping[str, _Known]) -> tuple[str, ...] | None:
        """Item ids in order, as far as they can be known."""
        if step.over is None:
            return None
        if step.over == "files":
            return tuple(step.listing or ())
        if step.by is not None:
            return pairs(feeds[step.by].items, feeds[step.over].items)
        if step.inputs[step.over].upstream.grouped:
            return tuple(groups(feeds[step.over].items, step.name))
        return feeds[step.over].items

    def _waits(self, step: Step, waiting: list[str], ids: tuple[str, ...] | None) -> _Known:
        for item in ids if ids is not None else (None,):
            self._tell(step, item, None, "maybe", "waits for " + " and ".join(sorted(set(waiting))))
        return _Known(ItemsRef({}), ids, ids) if ids is not None else _NOTHING

    def _single(self, step: Step, bound: Bound, locked: LockedStep) -> _Known:
        key = bound.key()
        record = self._look_up(step, key)
        if record is not None:
            locked.output = record.ref.digest
            self._tell(step, None, key, "hit", "unchanged", record, record.ref)
            return _Known(record.ref)
        made = self.ahead.make(step, bound.refs, key) if self.ahead is not None else None
        locked.output = made.digest if made is not None else ""
        self._tell(step, None, key, "run", self._why(step.name))
        return _NOTHING if made is None else _Known(made)

    def _fan(
        self,
        step: Step,
        bound: Bound,
        ids: tuple[str, ...],
        missing: Mapping[str, set[str]],
        locked: LockedStep,
    ) -> _Known:
        locked.items = {}
        found: dict[str, ArtifactRef] = {}
        misses: list[tuple[str, str]] = []
        for item in ids:
            lacking = [
                name
                for name, gone in missing.items()
                if gone and not gone.isdisjoint(bound.members(item)[name])
            ]
            if lacking:
                self._tell(
                    step,
                    item,
                    None,
                    "maybe",
                    "waits for " + " and ".join(str(step.inputs[n].step) for n in lacking),
                )
                continue
            key = bound.key(item)
            record = self._look_up(step, key)
            ref = record.ref if record is not None else None
            locked.items[item] = key, "" if ref is None else ref.digest
            if isinstance(ref, ArtifactRef):
                found[item] = ref
                self._tell(step, item, key, "hit", "unchanged", record, ref)
            else:
                misses.append((item, key))
        shared = self._why(step.name, shared=True) if misses else ""
        before = self.old.steps[step.name].items or {} if step.name in self.old.steps else {}
        for item, key in misses:
            own = (
                "new item"
                if before and item not in before
                else "its source changed"
                if before
                else "never built"
            )
            self._tell(step, item, key, "run", shared or own)
        return _Known(ItemsRef(found), tuple(item for item in ids if item not in found), ids)

    def _look_up(self, step: Step, key: str) -> Record | None:
        if step.name in self.force:
            return None
        record = self.store.record(key, touch=False)
        return record if record is not None and all(map(self.store.intact, record.objects)) else None

    def _why(self, stage: str, shared: bool = False) -> str:
        if not self.reasons:
            return ""
        if stage in self.force:
            return "forced"
        reason = why(stage, self.old, self.dry.current)
        if shared:
            return reason.line() if reason.changes or reason.status == "new" else ""
        return "not in the cache" if reason.status == "same" else reason.line()

    def _tell(
        self, step: Step, item: str | None, key: str | None, status: Status, reason: str,
        record: Record | None = None, ref: Ref | None = None,
    ) -> None:
        seconds, output = (
            record.seconds if record is not None else 0.0,
            ref.digest if ref is not None else None,
        )
        self.dry.steps.append(PlannedStep(step.name, item, key, status, reason, seconds, output))


def adopted(folder: Path, kind: type[Artifact]) -> ArtifactRef:
    """The reference of a hand-edited artifact folder, without taking it into a store."""
    try:
        body: dict[str, Any] = json.loads((Path(folder) / MANIFEST).read_bytes())["body"]
        manifest = Manifest(body["digest"], body["kind"], body["entries"], body["files"])
    except (OSError, ValueError, KeyError) as fault:
        because = (
            "it has no manifest" if isinstance(fault, FileNotFoundError | NotADirectoryError) else str(fault)
        )
        raise UsageError(
            f"{folder} is not an artifact folder", because=because, code="NF-USAGE-052",
        ) from fault
    value = kind.load(Reader(Path(folder), manifest, trusted=True))
    return ArtifactRef(value.digest(), value.uses())
