"""Why a step ran: the fields of its pre-image that changed, and the chain of steps that leads to each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from npuflow.flow.lock import Lock, LockedStep


@dataclass(frozen=True)
class FieldChange:
    """One field: its dotted name, what it was and what it is; None where it was not or is not."""

    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.field}: {shown(self.old)} -> {shown(self.new)}"


@dataclass
class Reason:
    """What changed for one stage, and what changed in the stages that it depends on."""

    stage: str
    status: str
    """new, gone, changed, or same."""
    changes: list[FieldChange] = field(default_factory=list)
    code: list[FieldChange] = field(default_factory=list)
    """The definitions behind a changed code digest."""
    items: list[FieldChange] = field(default_factory=list)
    """Items whose key differs: (old key, new key)."""
    causes: list[Reason] = field(default_factory=list)
    output: FieldChange | None = None

    def __bool__(self) -> bool:
        return self.status != "same"

    def roots(self) -> Iterator[Reason]:
        """The stages where the chain begins: those with changes that no other stage explains."""
        own = [c for c in self.changes if not c.field.startswith("inputs.")]
        if own or not self.causes:
            yield self
        for cause in self.causes:
            yield from cause.roots()

    def line(self) -> str:
        """The reason in one line, for plans and events."""
        if self.status == "new":
            return "never built"
        if self.status == "same":
            return "unchanged"
        own = [str(c) for c in self.changes if not c.field.startswith(("inputs.", "code"))]
        own += [f"code of {change.field}" for change in self.code[:3]]
        own += [f"and {len(self.code) - 3} more definitions"] if len(self.code) > 3 else []
        own += [str(c) for c in self.changes if c.field == "code" and not self.code]
        own += [
            f"product of {c.field.partition('.')[2]}" for c in self.changes if c.field.startswith("inputs.")
        ]
        if self.items and not own:
            own.append(_counted(self.items))
        return "; ".join(own) or "changed"


def why(stage: str, old: Lock, new: Lock, sources: Mapping[str, Mapping[str, str]] | None = None) -> Reason:
    """What changed for a stage between two locks. `sources`: stage -> parameter ->
    the stage that feeds it."""
    return _reason(stage, old, new, sources or {}, ())


def diff(old: Lock, new: Lock) -> list[Reason]:
    """Every stage that differs, in name order, without chains."""
    names = sorted({*old.steps, *new.steps})
    return [reason for name in names if (reason := _compare(name, old, new)) or reason.output]


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[FieldChange]:
    """Field-by-field difference of two flat tables."""
    names = sorted({*old, *new})
    return [FieldChange(n, old.get(n), new.get(n)) for n in names if not _equal(old.get(n), new.get(n))]


def _reason(
    stage: str, old: Lock, new: Lock, sources: Mapping[str, Mapping[str, str]], path: tuple[str, ...]
) -> Reason:
    reason = _compare(stage, old, new)
    if stage in path:
        return reason
    feeding = sources.get(stage, {})
    changed = {c.field.partition(".")[2] for c in reason.changes if c.field.startswith("inputs.")}
    if reason.items and not reason.changes:  # the items of the collection it runs over
        changed |= set(feeding)
    for param, source in sorted(feeding.items()):
        if param in changed:
            cause = _reason(source, old, new, sources, (*path, stage))
            if cause or cause.output:
                reason.causes.append(cause)
    return reason


def _compare(stage: str, old: Lock, new: Lock) -> Reason:
    before, after = old.steps.get(stage), new.steps.get(stage)
    if before is None or after is None:
        return Reason(stage, "new" if before is None else "gone")
    reason = Reason(stage, "same", changes(before.fields, after.fields), items=_items(before, after))
    if after.output and before.output != after.output:
        reason.output = FieldChange("output", before.output, after.output)
    if reason.changes or reason.items:
        reason.status = "changed"
    if any(c.field == "code" or c.field.startswith("plugins.") for c in reason.changes):
        reach = new.reach.get(stage)
        reason.code = [c for c in changes(old.code, new.code) if reach is None or c.field in reach]
    return reason


def _items(before: LockedStep, after: LockedStep) -> list[FieldChange]:
    old = {item: key for item, (key, _) in (before.items or {}).items()}
    new = {item: key for item, (key, _) in (after.items or {}).items()}
    return changes(old, new)


def _counted(items: list[FieldChange]) -> str:
    added = sum(c.old is None for c in items)
    gone = sum(c.new is None for c in items)
    parts = [f"{added} new"] * bool(added) + [f"{gone} gone"] * bool(gone)
    changed = len(items) - added - gone
    return "items: " + ", ".join(parts + [f"{changed} changed"] * bool(changed))


def _equal(old: Any, new: Any) -> bool:
    return type(old) is type(new) and (old == new or (old != old and new != new))


def shown(value: Any) -> str:
    """A value as a message shows it; digests shortened."""
    if value is None:
        return "(none)"
    if isinstance(value, str):
        return value[:11] + "…" if value.startswith("x3:") else f'"{value}"'
    return str(value).lower() if isinstance(value, bool) else str(value)
