"""Progress of a build: plain lines, or a live table on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from npuflow.cli._events import HINT, VERDICT, WARNING, figures
from npuflow.cli._progress_lines import Lines

if TYPE_CHECKING:
    from npuflow.flow.events import Event, StepEvent, Warned
    from npuflow.flow.plan import Plan


class ProgressView(Protocol):
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
    """What a settled step warns of: the fact of its summary called `warning`, with
    `warning_hint` for what to try."""
    from npuflow.flow.events import Warned

    text = str(event.summary.get(WARNING, "")) if event.status in ("hit", "ran") else ""
    return Warned(text, event.stage, str(event.summary.get(HINT, ""))) if text else None


def warned_once(event: StepEvent, known: list[Warned]) -> tuple[StepEvent, Warned | None]:
    """A settled step and what it warns of, which joins those that are `known`. One of these is left out of
    the step: refinements repeat the warnings of what they refine."""
    found = warned(event)
    if found is None or all(found.message != one.message for one in known):
        known += [found] if found is not None else []
        return event, found
    return replace(event, summary={k: v for k, v in event.summary.items() if k not in (WARNING, HINT)}), None


def judged(event: Any) -> dict[str, Any]:
    """What a settled step says of the accuracy of the outputs: the facts of its summary that are named in
    VERDICT. A later step knows more."""
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

        reported = (
            warned(event) if isinstance(event, StepEvent) else event if isinstance(event, Warned) else None
        )
        if reported is not None:
            warn(reported)

    def close(self) -> None:
        pass


def warn(event: Any) -> None:
    sys.stderr.write(f"warning: {event.message}\n" + (f"  try      {event.hint}\n" if event.hint else ""))


def warn_text(text: str) -> None:
    """A warning without more to it."""
    sys.stderr.write(f"warning: {text}\n")


class Plain:
    """One line for each stage as it settles, or for `every` step; a fan-out speaks now
    and then, and when it is done."""

    EVERY = 10.0

    def __init__(self, plan: Plan, every: bool = False, asked: Collection[str] = ()) -> None:
        self.over = {step.name for step in plan if step.over is not None}
        self.lines = Lines(plan, every, asked)
        self.width = max((len(line) for line in self.lines.shown), default=0)
        self.said: dict[str, float] = {}
        self.seconds: dict[str, float] = {}
        """Line -> what its steps took; a line of hits has none."""
        self.items: dict[str, tuple[int, str]] = {}
        """Line -> how the largest of its fan-outs went."""

    def show(self, event: Event) -> None:
        from npuflow.flow.events import Opened, Progress, StepEvent, Warned

        if isinstance(event, Warned):
            warn(event)
        elif isinstance(event, Opened) and event.dashboard:
            self._say(f"dask dashboard: {event.dashboard}")
        elif isinstance(event, StepEvent):
            self._step(event)
        elif isinstance(event, Progress) and event.stage in self.over:
            self._items(event)

    def _step(self, event: Any) -> None:
        line = self.lines.of[event.stage]
        if event.status == "ran":
            self.seconds[line] = self.seconds.get(line, 0.0) + event.seconds
        if event.status in ("hit", "ran"):
            if event.item is not None:
                return
            if self.lines.settles(event.stage):
                said = [text for text in (self.items.get(line, (0, ""))[1], facts(event.summary)) if text]
                self._line(line, "ran" if line in self.seconds else "hit", "; ".join(said))
        elif event.status == "failed" or self.lines.settles(event.stage):
            name = event.stage if event.status == "failed" else line
            self._line(name if event.item is None else f"{name}/{event.item}", event.status, event.reason)
        reported = warned(event)
        if reported is not None:
            warn(reported)

    def _items(self, event: Any) -> None:
        now = time.monotonic()
        first, line = self.said.setdefault(event.stage, now), self.lines.of[event.stage]
        full = event.done == event.total
        hits = f", {event.hits} hit" if event.hits else ""
        text = f"{event.done}/{event.total} items{hits}{pace(event)}"
        if full:
            self.items[line] = max(self.items.get(line, (0, "")), (event.total, text))
        if full and self.lines.settles(event.stage):
            self._line(line, "hit" if event.hits == event.total else "ran", text)
        elif not full and now - first >= self.EVERY:
            self.said[event.stage] = now
            self._line(line, "...", text)

    def _line(self, name: str, status: str, text: str) -> None:
        took = duration(self.seconds[name]) if status in ("ran", "...") and name in self.seconds else ""
        self._say(f"{name:<{self.width}}  {status:<7}  {took:>8}  {text}")

    def _say(self, text: str) -> None:
        sys.stderr.write(text.rstrip() + "\n")
        sys.stderr.flush()

    def close(self) -> None:
        pass
