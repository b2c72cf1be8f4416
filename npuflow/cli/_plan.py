"""The plan verb at work: a dry run as a table or as JSON lines."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from npuflow.base.errors import NpuflowError, RecipeError, UsageError
from npuflow.cli._components import planned_of, waits
from npuflow.cli._errors import show as show_error
from npuflow.cli._events import emit
from npuflow.cli._line_kinds import VERSION
from npuflow.cli._progress import duration, warn_text
from npuflow.flow.recipe_build import Settings, keep_memos, located, lock_path, open_cache

if TYPE_CHECKING:
    from npuflow.flow.dry import PlannedStep
    from npuflow.flow.plan import Plan
    from npuflow.flow.recipe import Recipe

SHOWN = 5


def show(
    paths: Sequence[Path], sets: Sequence[str], settings: Settings, *, as_json: bool, items: bool = False,
    graph: Path | None = None,
) -> None:
    """Plan every recipe; all faults of all of them at once."""
    if graph is not None and len(paths) > 1:
        raise UsageError(f"--graph draws one recipe; {len(paths)} are given", code="NF-USAGE-070")
    planned: list[tuple[Recipe, Plan]] = []
    faults: list[NpuflowError] = []
    for path in paths:
        try:
            planned += planned_of(path, sets, settings)
        except NpuflowError as error:
            faults += error.faults()
    if faults:
        code = show_error(RecipeError(faults), as_json=as_json)
        raise typer.Exit(code)
    for recipe, plan in planned:
        if waits(recipe, plan):
            warn_text(f"{recipe.name}: its samples are not there before other components are built")
            continue
        try:
            _one(recipe, plan, settings, as_json=as_json, items=items, graph=graph, alone=len(planned) == 1)
        except NpuflowError as error:
            raise located(error, recipe, plan) from error


def _one(
    recipe: Recipe,
    plan: Plan,
    settings: Settings,
    *,
    as_json: bool,
    items: bool,
    graph: Path | None,
    alone: bool,
) -> None:
    from npuflow.flow.ahead import Ahead
    from npuflow.flow.dry import dry
    from npuflow.flow.lock import read

    begun = time.perf_counter()
    name = {} if alone else {"recipe": recipe.name}
    store = open_cache(recipe, settings)
    steps = dry(plan, store, read(lock_path(recipe, settings)), settings.force, Ahead(store)).steps
    keep_memos()
    if graph is not None:
        from npuflow.cli._graph import task_graph
        from npuflow.report.figures.export import write

        write(graph, task_graph(plan, ((step.stage, str(step.status), step.reason) for step in steps)))
    if as_json:
        for step in steps:
            emit({**_line(step), **name})
    seconds = time.perf_counter() - begun
    counts = Counter(str(step.status) for step in steps)
    if as_json:
        emit({**_summary(plan, steps, counts, seconds), **name})
        return
    text = "\n".join(_table(plan, steps, items)) + "\n" if steps else ""
    head = ", ".join(f"{counts[status]} {word}" for status, word in _WORDS if counts[status]) or "nothing"
    sys.stdout.write(f"{text}{recipe.name}: {head} ({duration(seconds)})\n")


_WORDS = (("run", "to run"), ("maybe", "maybe"), ("hit", "hit"))


def _line(step: PlannedStep) -> dict[str, Any]:
    return {
        "event": "step", "stage": step.stage, "item": step.item, "key": step.key, "status": step.status,
        "seconds": round(step.seconds, 6), "output": step.output, "reason": step.reason,
    }


def _summary(
    plan: Plan, steps: Sequence[PlannedStep], counts: Counter[str], seconds: float
) -> dict[str, Any]:
    single = {step.name for step in plan if step.over is None}
    outputs = {step.stage: step.output for step in steps if step.stage in single and step.output is not None}
    return {
        "event": "summary",
        "version": VERSION,
        "hit": counts["hit"],
        "run": counts["run"],
        "maybe": counts["maybe"],
        "ran": 0,
        "failed": 0,
        "seconds": round(seconds, 6),
        "outputs": outputs,
        "products": {},
    }


def _table(plan: Plan, steps: Sequence[PlannedStep], items: bool) -> list[str]:
    """One line for each stage with its parts; below it the items that are not in the cache, the first few
    unless all are asked for, and then a line for each part too.
    """
    width = max(len(step.name if items else step.whole) for step in plan)
    rows = []
    for stage in plan:
        if stage.whole != stage.name and not items:
            continue
        mine = [
            step
            for step in steps
            if step.stage == stage.name or (plan[step.stage].whole == stage.name and not items)
        ]
        counts = Counter(str(step.status) for step in mine)
        single = len(mine) == 1 and mine[0].item is None
        if single:
            reason = mine[0].reason if mine[0].status != "hit" or stage.override is not None else ""
            rows.append(f"{stage.name:<{width}}  {mine[0].status:<6} {reason}".rstrip())
            continue
        status = "run" if counts["run"] else "maybe" if counts["maybe"] else "hit"
        reported = ", ".join(f"{counts[s]} {word}" for s, word in _WORDS if counts[s]) or "no items"
        rows.append(f"{stage.name:<{width}}  {status:<6} {reported}")
        waiting = [step for step in mine if step.status != "hit"]
        whole = len(waiting) == len(mine)
        # what its later parts wait for
        waiting = [step for step in waiting if step.stage == waiting[0].stage]
        reasons = {(step.status, step.reason) for step in waiting}
        if len(reasons) == 1 and (whole or waiting[0].item is None) and not items:
            rows[-1] += f": {waiting[0].reason}"
            continue
        shown = waiting if items else waiting[:SHOWN]
        rows += [f"{'':<{width}}    {step.item}: {step.status}, {step.reason}" for step in shown]
        if len(waiting) > len(shown):
            rows.append(f"{'':<{width}}    ... and {len(waiting) - len(shown)} more (--items)")
    rows += [f"{name:<{width}}  off    {why}" for name, why in sorted(plan.off.items())]
    return rows
