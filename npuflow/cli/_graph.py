"""The task graph of a plan as a figure: what each stage needs, and whether it is in the cache."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from npuflow.base.errors import UsageError
from npuflow.report.figures.boxes import boxes
from npuflow.report.figures.layered import direct
from npuflow.report.figures.spec import GREEN, GREY, ORANGE, RED, Row, Spec

if TYPE_CHECKING:
    from npuflow.flow.plan import Plan

KINDS = {
    "failed": ("failed", "#f3c6c7", RED),
    "ran": ("ran", "#fbe3c4", ORANGE),
    "run": ("to run", "#fbe3c4", ORANGE),
    "maybe": ("maybe", "#fdf4e3", ORANGE),
    "skipped": ("skipped", "#eceff2", GREY),
    "hit": ("in the cache", "#dcefe3", GREEN),
}
"""Status -> its word, and the fill and edge of its boxes; of a stage's tasks the first one here counts."""

SCRIPT = "graph.js"  # beside a report, which shows it

Tasks = Iterable[tuple[str, str, str]]
"""Step, status and reason of every task: one of a step, or of each of its items."""


@dataclass
class _Stage:
    """A stage with its parts."""

    counts: Counter[str] = field(default_factory=Counter)
    reason: str = ""

    def row(self, name: str) -> Row:
        status = next((status for status in KINDS if self.counts[status]), "skipped")
        word, single = KINDS[status][0], sum(self.counts.values()) <= 1
        counted = ", ".join(f"{self.counts[s]} {KINDS[s][0]}" for s in KINDS if self.counts[s])
        said = word if single else counted
        return {"text": name, "below": said, "kind": word, "label": f"{name}: {self.reason or said}"}


def task_graph(plan: Plan, tasks: Tasks) -> Spec:
    """From the sources at the top to the last products."""
    stages = {step.whole: _Stage() for step in plan}
    for name, status, reason in tasks:
        stage = stages[plan[name].whole]
        stage.counts[status] += 1
        stage.reason = stage.reason or (reason if status not in ("hit", "ran") else "")
    needs: dict[str, set[str]] = {name: set() for name in stages}
    for step in plan:
        sources = {plan[place.step].whole for place in step.inputs.values() if place.step is not None}
        needs[step.whole] |= sources - {step.whole}
    colours = {word: (fill, edge) for word, fill, edge in KINDS.values()}
    return boxes({name: stage.row(name) for name, stage in stages.items()}, direct(needs), colours)


def write_script(path: Path, spec: Spec) -> None:
    """The figure as a script for the page beside it: a page opened from a disk may load scripts only."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"window.npuflowGraph = {json.dumps(spec)};\n", "utf-8")
    except OSError as fault:
        raise UsageError(
            f'cannot write "{path}"', because=fault.strerror or str(fault), code="NF-USAGE-025"
        ) from fault
