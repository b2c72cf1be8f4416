"""Progress on a terminal: a bar for every stage with its items, hits and the time left."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from npuflow.cli._progress import duration, facts, pace, warned
from npuflow.cli._progress_lines import Lines

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
    return TextColumn("{task.fields[reported]}", style="dim", markup=False, table_column=rest)


class Live:
    """The stages of a plan as a table that moves."""

    def __init__(self, plan: Plan, every: bool = False, asked: Collection[str] = ()) -> None:
        self.console = Console(stderr=True)
        self.bars = Progress(
            TextColumn("{task.fields[mark]}"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[count]}", markup=False),
            _Left(),
            _told(),
            console=self.console,
            transient=False,
            expand=True,
        )
        self.over = {step.name for step in plan if step.over is not None}
        self.lines = Lines(plan, every, asked)
        self.tasks: dict[str, TaskID] = {}
        for line in self.lines.shown:
            self.tasks[line] = self.bars.add_task(
                line, start=False, total=1, mark=" ", count="", reported="", spent=0.0
            )
        self.rest = None
        if not every:
            self.rest = self.bars.add_task(
                "", False, 1, visible=False, mark=" ", count="", reported="", spent=0.0
            )
        """What runs and has no line."""
        self.spent: dict[str, float] = {}
        self.counts: dict[str, tuple[int, str]] = {}
        """Line -> the items of its largest fan-out, and how many of them there are."""
        self.begun: set[str] = set()
        self.failed: set[str] = set()
        self.bars.start()

    def show(self, event: Event) -> None:
        from npuflow.flow import events

        if isinstance(event, events.Warned):
            self._warn(event)
        elif isinstance(event, events.Opened) and event.dashboard:
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
        line = self.lines.of[event.stage]
        single = {"count": "running", "mark": ">"} if event.stage not in self.over else {}
        if line not in self.tasks:
            self._beside(event.stage, count=single.get("count", ""))
        elif event.stage not in self.begun:
            self.bars.start_task(self.tasks[line])
            self._set(line, **single)
        self.begun.add(event.stage)

    def _step(self, event: Any) -> None:
        line = self.lines.of[event.stage]
        if event.status == "ran":
            self.spent[line] = self.spent.get(line, 0.0) + event.seconds
        warning = warned(event)
        if warning is not None:
            self._warn(warning)
        if event.status == "failed":
            self.failed.add(line)
            reported = event.reason if event.item is None else f"{event.item}: {event.reason}"
            self._set(
                line,
                mark="[bold red]x",
                reported=reported,
                **({"count": "failed"} if event.item is None else {}),
            )
        elif event.item is None and self.lines.settles(event.stage):
            status = event.status if event.status == "skipped" else "ran" if line in self.spent else "hit"
            mark, style = MARKS[status]
            reported = event.reason if event.status == "skipped" else facts(event.summary)
            count = self.counts.get(line, (0, status))[1]
            spent = self.spent.get(line, 0.0)
            self._set(
                line,
                mark=f"[{style}]{mark}",
                count=count,
                reported=reported,
                spent=spent,
                total=1,
                completed=1,
            )
        elif event.item is None and line not in self.tasks:
            self._beside(event.stage, visible=False)

    def _items(self, event: Any) -> None:
        line = self.lines.of[event.stage]
        hits = f", {event.hits} hit" if event.hits else ""
        full = event.done == event.total
        count = f"{event.done}/{event.total}{hits}"
        bar = {"total": event.total or 1, "completed": event.done or int(full), "count": count}
        if line not in self.tasks:
            self._beside(event.stage, **bar, visible=not full)
            return
        if event.total < self.counts.get(line, (0, ""))[0]:
            return                                  # the merges of what has just been counted
        self.counts[line] = event.total, count
        ended = full and self.lines.settles(event.stage)
        mark, style = MARKS["hit" if event.hits == event.total else "ran"] if ended else (">", "")
        mark, style = MARKS["failed"] if line in self.failed else (mark, style)
        reported = {} if line in self.failed else {"reported": pace(event).removeprefix(", ")}
        self._set(
            line,
            **bar,
            **reported,
            mark=f"[{style}]{mark}" if style else mark,
            spent=self.spent.get(line, 0.0),
        )

    def _beside(self, stage: str, visible: bool = True, **fields: Any) -> None:
        """The one row for steps that have none: the last of them to move."""
        if self.rest is not None:
            self.bars.update(self.rest, description=stage, visible=visible, **fields)

    def _set(self, line: str, **fields: Any) -> None:
        if line in self.tasks:
            self.bars.update(self.tasks[line], **fields)

    def close(self) -> None:
        if self.rest is not None:
            self.bars.update(self.rest, visible=False)
        self.bars.stop()
