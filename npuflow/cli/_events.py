"""Prints the lines of --json: events of builds, and what other verbs found."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from npuflow.cli._line_kinds import VERSION

if TYPE_CHECKING:
    from npuflow.flow.events import Event

WARNING, HINT = "warning", "warning_hint"     # facts of a summary that become a warning of their own
VERDICT = ("verdict", "verdict_ok", "verdict_hint")      # and those that become the last line of a build


def figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What a step's product says of itself, without what is reported as a warning; numbers that JSON lacks as
    text.
    """
    kept = {name: value for name, value in summary.items() if name not in (WARNING, HINT, *VERDICT)}
    odd = [name for name, value in kept.items() if isinstance(value, float) and not isfinite(value)]
    return {**kept, **{name: str(kept[name]) for name in odd}}


def emit(body: Mapping[str, Any]) -> None:
    """One line, at once: a reader may act on it while the build goes on. `event` is its kind, one of
    `_line_kinds`; numbers that JSON lacks become text."""
    sys.stdout.write(json.dumps(_finite(body), ensure_ascii=False, default=_plain) + "\n")
    sys.stdout.flush()


def written(file: object, kind: str, notes: Sequence[str] = (), **facts: Any) -> None:
    """The line of a file that a verb has written."""
    emit({"event": "written", "file": str(file), "kind": kind, "facts": facts, "notes": list(notes)})


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy as Python has them; anything else as text."""
    return _finite(value.tolist()) if hasattr(value, "tolist") else str(value)


def as_json(
    event: Event, recipe: str | None = None, verdict: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """The JSON line of an event, None for those that only a terminal wants. `recipe`
    names one of several; `verdict`:
    what the steps so far say of the accuracy."""
    from npuflow.flow.events import Progress, StepEvent, Summary, Warned

    more = {"recipe": recipe} if recipe is not None else {}
    if isinstance(event, StepEvent):
        return {
            "event": "step",
            "stage": event.stage,
            "item": event.item,
            "key": event.key,
            "status": event.status,
            "seconds": round(event.seconds, 6),
            "output": event.output,
            "reason": event.reason,
            "figures": figures(event.summary),
            **more,
        }
    if isinstance(event, Progress) and event.workers:
        return {
            "event": "progress",
            "stage": event.stage,
            "done": event.done,
            "total": event.total,
            "hits": event.hits,
            "rate": round(event.rate, 3),
            "shard": event.shard,
            "workers": event.workers,
            "memory": event.memory,
            **more,
        }
    if isinstance(event, Summary):
        return {
            "event": "summary",
            "version": VERSION,
            "hit": event.hit,
            "ran": event.ran,
            "failed": event.failed,
            "skipped": event.skipped,
            "seconds": round(event.seconds, 6),
            "outputs": dict(event.outputs),
            "products": dict(event.products),
            **dict.fromkeys(VERDICT),
            **(verdict or {}),
            **more,
        }
    if isinstance(event, Warned):
        return {
            "event": "warning",
            "message": event.message,
            "stage": event.stage,
            "hint": event.hint,
            **more,
        }
    return None
