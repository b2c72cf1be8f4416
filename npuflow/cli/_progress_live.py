"""Progress on a terminal: a bar for every stage with its items, hits and the time left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from npuflow.cli._progress import duration, facts, pace, warned

if TYPE_CHECKING:
    from npuflow.flow.events import Event
    from npuflow.flow.plan import Plan

MARKS = {"hit": ("=", "dim"), "ran": ("+", "green"), "failed": ("x", "bold red"), "skipped": ("-", "yellow")}


class _Left(ProgressColumn):
    """Time left while a stage runs; what it took when it is done."""

    def render(self, task: Task) -> Text:
        if task.finished:
            spent = float(task.fields.get("spent", 0.0))
            return Text(duration(spent) if spent else "", style="dim")
        left = task.time_remaining
        return Text(f"{duration(left)} left" if left is not None and task.started else "", style="cyan")


def _told() -> TextColumn:
    """What a stage says takes the room that is left, and no more; it is text, whatever brackets are in it."""
    rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    return TextColumn("{task.fields[told]}", style="dim", markup=False, table_column=rest)


class Live:
    """The stages of a plan as a table that moves."""

    def __init__(self, plan: Plan) -> None:
        self.console = Console(stderr=True)
        self.bars = Progress(
            TextColumn("{task.fields[mark]}"), TextColumn("{task.description}", markup=False), BarColumn(bar_width=24),
            TextColumn("{task.fields[count]}", markup=False), _Left(), _told(),
            console=self.console, transient=False, expand=True,
        )  # fmt: skip
        self.over = {step.name for step in plan if step.over is not None}
        self.tasks: dict[str, TaskID] = {}
        for step in plan:
            task = self.bars.add_task(step.name, start=False, total=1, mark=" ", count="", told="", spent=0.0)
            self.tasks[step.name] = task
        self.spent: dict[str, float] = {}
        self.begun: dict[str, float] = {}
        self.failed: set[str] = set()
        self.bars.start()

    def show(self, event: Event) -> None:
        from npuflow.flow import events

        if isinstance(event, events.Warned):
            self._warn(event)
        elif isinstance(event, events.Started) and event.dashboard:
            self.bars.console.print(f"dask dashboard: {event.dashboard}", style="dim")
        elif isinstance(event, events.Running):
            self._running(event)
        elif isinstance(event, events.StepEvent):
            self._step(event)
        elif isinstance(event, events.Progress) and event.stage in self.over:
            self._items(event)

    def _warn(self, warning: Any) -> None:
        self.bars.console.print(f"warning: {warning.message}", style="yellow", highlight=False, markup=False)
        if warning.hint:
            self.bars.console.print(f"  try      {warning.hint}", highlight=False, markup=False)

    def _running(self, event: Any) -> None:
        if event.stage not in self.begun:
            self.begun[event.stage] = time.monotonic()
            self.bars.start_task(self.tasks[event.stage])
            if event.stage not in self.over:
                self._set(event.stage, count="running", mark=">")

    def _step(self, event: Any) -> None:
        if event.status == "ran":
            self.spent[event.stage] = self.spent.get(event.stage, 0.0) + event.seconds
        warning = warned(event)
        if warning is not None:
            self._warn(warning)
        if event.item is None:
            mark, style = MARKS[event.status]
            told = event.reason if event.status in ("failed", "skipped") else facts(event.summary)
            spent = self.spent.get(event.stage, 0.0)
            done = {"total": 1, "completed": 1}
            self._set(event.stage, mark=f"[{style}]{mark}", count=event.status, told=told, spent=spent, **done)
        elif event.status == "failed":
            self.failed.add(event.stage)
            self._set(event.stage, mark="[bold red]x", told=f"{event.item}: {event.reason}")

    def _items(self, event: Any) -> None:
        hits = f", {event.hits} hit" if event.hits else ""
        full = event.done == event.total
        mark, style = MARKS["hit" if full and event.hits == event.total else "ran"] if full else (">", "")
        mark, style = MARKS["failed"] if event.stage in self.failed else (mark, style)
        self._set(
            event.stage, total=event.total or 1, completed=event.done or int(full), count=f"{event.done}/{event.total}{hits}",
            mark=f"[{style}]{mark}" if style else mark, spent=self.spent.get(event.stage, 0.0),
            **({"told": pace(event).removeprefix(", ")} if event.stage not in self.failed else {}),
        )  # fmt: skip

    def _set(self, stage: str, **fields: Any) -> None:
        self.bars.update(self.tasks[stage], **fields)

    def close(self) -> None:
        self.bars.stop()
