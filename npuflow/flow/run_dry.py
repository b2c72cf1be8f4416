"""A dry run: what a build would do, from keys and records alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from npuflow.flow.artifact import ArtifactRef
from npuflow.flow.keys import Bound
from npuflow.flow.plan import Plan, Step
from npuflow.flow.refs import ItemsRef, Ref
from npuflow.flow.store import Store
from npuflow.flow.store_record import Record

Status = Literal["hit", "run", "maybe"]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step (or one item of a fan-out) as a build would meet it.

    `maybe`: an input is still to be made. If it comes out as it was, the step is spared (early cutoff).
    """

    stage: str
    item: str | None
    key: str | None
    status: Status
    reason: str = ""
    seconds: float = 0.0
    output: str | None = None
    bound: Bound | None = None

    def preimage(self) -> dict[str, Any] | None:
        """What the key is made of, if the inputs are known."""
        return self.bound.preimage(self.item) if self.bound is not None and self.key is not None else None


Reason = Callable[[PlannedStep], str]


def dry(plan: Plan, store: Store, force: frozenset[str] = frozenset(), why: Reason | None = None) -> Iterator[PlannedStep]:
    """Every step in order, with its status; nothing runs and nothing is written. `why` words the reason of a run."""
    return _Dry(plan, store, force, why or (lambda step: "not in the cache")).steps()


class _Dry:
    """What is known of each step's product while the plan is walked: whole, in part (a fan-out), or not at all."""

    def __init__(self, plan: Plan, store: Store, force: frozenset[str], why: Reason) -> None:
        self.plan, self.store, self.force, self.why = plan, store, force, why
        self.whole: dict[str, Ref] = {}
        self.part: dict[str, dict[str, ArtifactRef]] = {}
        self.open: dict[str, list[str]] = {}
        """Items of a fan-out whose product is not known."""
        self._loaded: tuple[str, Any] = ("", None)

    def steps(self) -> Iterator[PlannedStep]:
        for step in self.plan:
            if step.override is not None:
                ref = self.store.adopt(step.override, step.signature.output)
                self.whole[step.name] = ref
                yield PlannedStep(step.name, None, None, "hit", f"taken from {step.override}", output=ref.digest)
                continue
            waits = [p.step for p in step.inputs.values() if p.step is not None and p.step not in self.whole]
            if not waits:
                yield from self._known(step)
            elif step.over in step.inputs and waits == [step.inputs[step.over].step] and waits[0] in self.part:
                yield from self._partly(step, waits[0])
            else:
                self._unknown(step, waits)
                reason = "waits for " + ", ".join(dict.fromkeys(waits))
                items: list[str] | list[None] = self.open.get(step.name, [None])
                for item in items:
                    yield PlannedStep(step.name, item, None, "maybe", reason)

    def _known(self, step: Step) -> Iterator[PlannedStep]:
        refs = {name: None if p.step is None else self.whole[p.step] for name, p in step.inputs.items()}
        bound = step.bind(refs, self._load)
        if bound.ids is not None:
            yield from self._items(step, bound, [])
            return
        key = bound.key()
        record = self._record(step, key)
        if record is not None:
            self.whole[step.name] = record.ref
        yield self._one(step, None, key, record, bound)

    def _partly(self, step: Step, source: str) -> Iterator[PlannedStep]:
        """A fan-out over a fan-out of which some items are still to be made: the others are known one by one."""
        refs = {
            name: None if p.step is None else ItemsRef(self.part[source]) if p.step == source else self.whole[p.step]
            for name, p in step.inputs.items()
        }
        yield from self._items(step, step.bind(refs, self._load), self.open[source])

    def _items(self, step: Step, bound: Bound, unknown: list[str]) -> Iterator[PlannedStep]:
        found: dict[str, ArtifactRef] = {}
        missing: list[str] = list(unknown)
        for item in bound.ids or ():
            key = bound.key(item)
            record = self._record(step, key)
            if record is not None and isinstance(record.ref, ArtifactRef):
                found[item] = record.ref
            else:
                missing.append(item)
            yield self._one(step, item, key, record, bound)
        over = step.inputs[str(step.over)].step if step.over in step.inputs else None
        for item in unknown:
            yield PlannedStep(step.name, item, None, "maybe", f"waits for {over}")
        if missing:
            self.part[step.name], self.open[step.name] = found, missing
        else:
            self.whole[step.name] = ItemsRef(found)

    def _unknown(self, step: Step, waits: list[str]) -> None:
        """A fan-out over known items keeps its ids even when another input is still to be made."""
        if step.over == "files":
            self.open[step.name] = list(step.listing or ())
        elif step.over is not None:
            source = step.inputs[step.over].step
            whole = self.whole.get(str(source))
            if isinstance(whole, ItemsRef):
                self.open[step.name] = list(whole.items)
            elif source in self.open:
                self.open[step.name] = [*self.part.get(source, {}), *self.open[source]]
        if step.name in self.open:
            self.part[step.name] = {}

    def _record(self, step: Step, key: str) -> Record | None:
        if step.name in self.force:
            return None
        record = self.store.record(key, touch=False)
        if record is None or not all(self.store.intact(digest) for digest in record.objects):
            return None
        return record

    def _one(self, step: Step, item: str | None, key: str, record: Record | None, bound: Bound) -> PlannedStep:
        if record is not None:
            return PlannedStep(step.name, item, key, "hit", "", record.seconds, record.output, bound)
        planned = PlannedStep(step.name, item, key, "run", "", bound=bound)
        reason = "forced" if step.name in self.force else self.why(planned)
        return PlannedStep(step.name, item, key, "run", reason, bound=bound)

    def _load(self, ref: ArtifactRef, kind: Any) -> Any:
        if self._loaded[0] != ref.digest:
            self._loaded = ref.digest, self.store.load(ref, kind)
        return self._loaded[1]
