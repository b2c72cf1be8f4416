"""Finds the records of a plan's steps in the cache, without running anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import UsageError, suggestion
from npuflow.base.wording import counted

if TYPE_CHECKING:
    from npuflow.flow.plan import Plan
    from npuflow.flow.refs import Ref
    from npuflow.flow.store import Store
    from npuflow.flow.store_record import Record


@dataclass(frozen=True)
class FoundStep:
    """A step whose inputs are in the cache: its keys by item, and the records that are there."""

    keys: Mapping[str | None, str]
    records: Mapping[str | None, Record]


def found(plan: Plan, store: Store, until: str) -> FoundStep | None:
    """The keys and records of one step; None if something it needs has not been built."""
    from npuflow.flow.artifact import ArtifactRef
    from npuflow.flow.refs import ItemsRef

    refs: dict[str, Ref] = {}
    last: tuple[Any, Any] = (None, None)

    def load(ref: ArtifactRef, kind: Any) -> Any:
        nonlocal last
        if last[0] != ref.digest:
            last = (ref.digest, store.load(ref, kind))
        return last[1]

    for step in plan:
        if step.override is not None:
            refs[step.name] = store.adopt(step.override, step.signature.output)
            continue
        sources = {name: place.step for name, place in step.inputs.items()}
        if any(source is not None and source not in refs for source in sources.values()):
            if step.name == until:
                return None
            continue
        bound = step.bind({name: None if s is None else refs[s] for name, s in sources.items()}, load)
        keys = {item: bound.key(item) for item in (bound.ids if bound.ids is not None else (None,))}
        records = {
            item: record
            for item, key in keys.items()
            if (record := store.record(key, touch=False)) is not None
        }
        if step.name == until:
            return FoundStep(keys, records)
        if len(records) == len(keys):
            if bound.ids is None:
                refs[step.name] = records[None].ref
            else:
                members = {str(item): record.ref for item, record in records.items()}
                refs[step.name] = ItemsRef({k: v for k, v in members.items() if isinstance(v, ArtifactRef)})
    return None


def split(plan: Plan, what: str) -> tuple[str, str | None]:
    """`STAGE` or `STAGE/ITEM`."""
    stage, slash, item = what.partition("/")
    if stage not in plan:
        off = plan.off.get(stage)
        names = [step.name for step in plan]
        if off is not None:
            raise UsageError(f'the stage "{stage}" is off', because=off, code="NF-USAGE-016")
        raise UsageError(f'there is no stage "{stage}"', hint=suggestion(stage, names), code="NF-USAGE-017")
    return stage, item if slash else None


def record_of(plan: Plan, store: Store, what: str) -> Record:
    """The record of one step, or of one item of a fan-out."""
    stage, item = split(plan, what)
    got = found(plan, store, stage)
    if got is None or (item is None and not got.records):
        raise UsageError(
            f'"{what}" has not been built from the recipe as it is now',
            hint="npuflow build RECIPE, then ask again", code="NF-USAGE-018",
        )
    if item is None and None not in got.keys:
        raise UsageError(
            f'"{stage}" has {counted(len(got.keys), "item")}',
            hint=suggestion("", [f"{stage}/{i}" for i in got.keys]), code="NF-USAGE-019",
        )
    if item not in got.keys:
        names = [str(i) for i in got.keys if i is not None]
        hint = suggestion(str(item), names) if names else f'just "{stage}": it is one step, without items'
        raise UsageError(f'"{stage}" has no item "{item}"', hint=hint, code="NF-USAGE-020")
    if item not in got.records:
        raise UsageError(
            f'"{what}" has not been built from the recipe as it is now',
            hint="npuflow build RECIPE, then ask again", code="NF-USAGE-018",
        )
    return got.records[item]
