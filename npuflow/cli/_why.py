"""Reasons in words: changed fields with old and new value, and the chain of steps that leads to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import UsageError
from npuflow.cli._build import prepare
from npuflow.cli._records import split
from npuflow.flow.recipe_build import Settings, keep_memos, lock_path, open_cache, previous_lock_path

if TYPE_CHECKING:
    from npuflow.flow.dry import Dry, PlannedStep
    from npuflow.flow.explain import FieldChange, Reason

MANY = 12


@dataclass(frozen=True)
class WhyAnswer:
    """The answer of `npuflow why`, as text and as JSON lines."""

    text: str
    lines: Sequence[dict[str, Any]]


def explain(what: str, path: Path, sets: Sequence[str], settings: Settings) -> WhyAnswer:
    """The whole answer for one step."""
    from npuflow.flow.dry import dry
    from npuflow.flow.explain import why
    from npuflow.flow.lock import read
    from npuflow.flow.recipe_files import shown_path

    recipe, plan = prepare(path, sets, settings)
    stage, item = split(plan, what)
    lock = lock_path(recipe, settings)
    last = read(lock)
    planned = dry(plan, open_cache(recipe, settings), last)
    keep_memos()
    mine = [step for step in planned.steps if step.stage == stage]
    if item is not None:
        mine = [step for step in mine if step.item == item]
        if not mine:
            raise UsageError(f'"{stage}" has no item "{item}"', code="NF-USAGE-020")
    if any(step.status != "hit" for step in mine):
        told = [*_would(what, stage, mine, planned)]
        if last is None:
            told.append(
                f"  no build to compare with: there is no {shown_path(lock)}; --out names another folder"
            )
        maybe = all(step.status != "run" for step in mine)
        return _answer(what, "maybe" if maybe else "yes", told, _reasons(stage, planned, ()))
    before = read(previous_lock_path(recipe, settings))
    reason = None if before is None or last is None else why(stage, before, last, planned.sources)
    return _answer(what, "no", [*_did(what, reason)], [reason] if reason else [])


def _answer(what: str, runs: str, told: Sequence[str], reasons: Sequence[Reason]) -> WhyAnswer:
    text = "\n".join(told) + "\n"
    line = {"event": "why", "step": what, "runs": runs, "reasons": [*map(plain, reasons)], "text": text}
    return WhyAnswer(text, [line])


def _reasons(stage: str, planned: Dry, path: tuple[str, ...]) -> list[Reason]:
    """What changed for a stage, and for the steps that it waits for."""
    found = [planned.why(stage)] if stage in planned.current.steps else []
    waits = any(step.stage == stage and step.status == "maybe" for step in planned.steps)
    if found and not waits:
        return found
    open_stages = {step.stage for step in planned.steps if step.status != "hit"}
    for source in dict.fromkeys(planned.sources.get(stage, {}).values()):
        if source in open_stages and source not in path:
            found += _reasons(source, planned, (*path, stage))
    return found


def plain(reason: Reason) -> dict[str, Any]:
    """A reason as JSON has it, with its causes in it."""
    kinds = {"changes": reason.changes, "code": reason.code, "items": reason.items}
    return {
        "stage": reason.stage, "status": reason.status,
        "output": None if reason.output is None else asdict(reason.output),
        **{kind: [asdict(change) for change in found] for kind, found in kinds.items()},
        "causes": [plain(cause) for cause in reason.causes],
    }


def _would(what: str, stage: str, mine: Sequence[PlannedStep], planned: Dry) -> Iterator[str]:
    runs = [step for step in mine if step.status == "run"]
    word = "would run" if runs else "may run"
    of = f" ({len(runs or mine)} of its items)" if len(mine) > 1 else ""
    yield f"{what} {word}{of}"
    own = [step for step in mine if step.status != "hit"]
    if len(mine) == 1 and own[0].item is not None and runs:
        yield f"  {own[0].reason}"
    yield from _chain(stage, planned, "  ", ())


def _chain(stage: str, planned: Dry, indent: str, path: tuple[str, ...]) -> Iterator[str]:
    """What changed for a stage; where that is an input not known yet, what changed
    for the step that makes it."""
    steps = [step for step in planned.steps if step.stage == stage]
    if stage in planned.current.steps:
        reason = planned.why(stage)
        if reason.status == "same" and any(step.status == "run" for step in steps):
            yield f"{indent}its product is not in the cache"
        yield from tree(reason, indent)
        waiting = [s for s in steps if s.status == "maybe"]
    else:
        waiting = steps
    if not waiting:
        return
    open_stages = {step.stage for step in planned.steps if step.status != "hit"}
    for source in dict.fromkeys(planned.sources.get(stage, {}).values()):
        if source in open_stages and source not in path:
            yield f"{indent}waits for {source}"
            yield from _chain(source, planned, indent + "  ", (*path, stage))


def _did(what: str, reason: Reason | None) -> Iterator[str]:
    """Of a step that would not run. `reason`: what changed between the last two builds, if there are two."""
    yield f"{what} is up to date"
    if reason is None:
        return
    if reason:
        yield "the last build ran it, or found it elsewhere in the cache, because since the build before"
        yield from tree(reason, "  ")
    else:
        yield "nothing that it depends on changed between the last two builds either"


def tree(reason: Reason, indent: str) -> Iterator[str]:
    """A reason with its causes below it."""
    if reason.status in ("new", "gone"):
        yield f"{indent}{'never built before' if reason.status == 'new' else 'no longer there'}"
    for change in reason.changes:
        if change.field == "code" and reason.code:
            continue
        yield f"{indent}{change}"
    for change in reason.code[:MANY]:
        yield f"{indent}{_code(change)}"
    if len(reason.code) > MANY:
        yield f"{indent}... and {len(reason.code) - MANY} more definitions"
    for change in reason.items[:MANY]:
        yield f"{indent}item {change.field}: {_item(change)}"
    if len(reason.items) > MANY:
        yield f"{indent}... and {len(reason.items) - MANY} more items"
    for cause in reason.causes:
        yield f"{indent}{cause.stage} {'changed' if cause else 'gave another product'}"
        yield from tree(cause, indent + "  ")


def _code(change: FieldChange) -> str:
    word = "added" if change.old is None else "removed" if change.new is None else "edited"
    return f"code of {change.field}: {word}"


def _item(change: FieldChange) -> str:
    return "new" if change.old is None else "gone" if change.new is None else "changed"
