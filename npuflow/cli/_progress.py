"""Progress of a build: plain lines, or a live table on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from npuflow.cli._events import HINT, VERDICT, WARNING, figures

if TYPE_CHECKING:
    from npuflow.flow.events import Event, Warned
    from npuflow.flow.plan import Plan


class View(Protocol):
    """Shows events of one build."""

    def show(self, event: Event) -> None: ...
    def close(self) -> None: ...


def duration(seconds: float) -> str:
    """A duration as people say it: 3.1 s, 2 min 05 s."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def facts(summary: Mapping[str, Any]) -> str:
    """An artifact's scalars in a line."""
    shown = figures(summary).items()
    return ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in shown)


def warned(event: Any) -> Warned | None:
    """What a settled step warns of: the fact of its summary called `warning`, with `warning_hint` for what to try."""
    from npuflow.flow.events import Warned

    text = str(event.summary.get(WARNING, "")) if event.status in ("hit", "ran") else ""
    return Warned(text, event.stage, str(event.summary.get(HINT, ""))) if text else None


def judged(event: Any) -> dict[str, Any]:
    """What a settled step says of the accuracy of the outputs: the facts of its summary that are named in VERDICT. A
    later step knows more."""
    found = getattr(event, "summary", None) or {}
    settled = getattr(event, "status", "") in ("hit", "ran") and VERDICT[0] in found
    return {key: found.get(key) for key in VERDICT} if settled else {}


def pace(event: Any) -> str:
    """How a fan-out goes: items a second, items a task, workers and the memory of the largest."""
    if not event.workers:
        return ""
    from npuflow.flow.memory import shown

    rate = f"{event.rate:.0f}" if event.rate >= 100 else f"{event.rate:.3g}"
    many = "1 worker of" if event.workers == 1 else f"{event.workers} workers of up to"
    return f", {rate}/s, {event.shard} a task, {many} {shown(event.memory)}"


class Silent:
    """Only warnings."""

    def show(self, event: Event) -> None:
        from npuflow.flow.events import StepEvent, Warned

        told = warned(event) if isinstance(event, StepEvent) else event if isinstance(event, Warned) else None
        if told is not None:
            warn(told)

    def close(self) -> None:
        pass


def warn(event: Any) -> None:
    sys.stderr.write(f"warning: {event.message}\n" + (f"  try      {event.hint}\n" if event.hint else ""))


def warn_text(text: str) -> None:
    """A warning without more to it."""
    sys.stderr.write(f"warning: {text}\n")


class Plain:
    """One line for each step as it settles; a fan-out speaks now and then, and when it is done."""

    EVERY = 10.0

    def __init__(self, plan: Plan) -> None:
        self.over = {step.name for step in plan if step.over is not None}
        self.width = max((len(step.name) for step in plan), default=0)
        self.said: dict[str, float] = {}
        self.seconds: dict[str, float] = {}

    def show(self, event: Event) -> None:
        from npuflow.flow.events import Progress, Started, StepEvent, Warned

        if isinstance(event, Warned):
            warn(event)
        elif isinstance(event, Started) and event.dashboard:
            self._say(f"dask dashboard: {event.dashboard}")
        elif isinstance(event, StepEvent):
            self._step(event)
        elif isinstance(event, Progress) and event.stage in self.over:
            self._items(event)

    def _step(self, event: Any) -> None:
        if event.status == "ran":
            self.seconds[event.stage] = self.seconds.get(event.stage, 0.0) + event.seconds
        if event.item is not None and event.status in ("hit", "ran"):
            return
        name = event.stage if event.item is None else f"{event.stage}/{event.item}"
        took = duration(event.seconds) if event.status == "ran" else ""
        shown = event.reason if event.status in ("failed", "skipped") else facts(event.summary)
        self._say(f"{name:<{self.width}}  {event.status:<7}  {took:>8}  {shown}")
        told = warned(event)
        if told is not None:
            warn(told)

    def _items(self, event: Any) -> None:
        now = time.monotonic()
        first = self.said.setdefault(event.stage, now)
        if event.done < event.total and now - first < self.EVERY:
            return
        self.said[event.stage] = now
        took = duration(self.seconds[event.stage]) if event.stage in self.seconds else ""
        status = ("hit" if event.hits == event.total else "ran") if event.done == event.total else "..."
        hits = f", {event.hits} hit" if event.hits else ""
        self._say(f"{event.stage:<{self.width}}  {status:<7}  {took:>8}  {event.done}/{event.total} items{hits}{pace(event)}")

    def _say(self, text: str) -> None:
        sys.stderr.write(text.rstrip() + "\n")
        sys.stderr.flush()

    def close(self) -> None:
        pass
