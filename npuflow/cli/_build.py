"""The build verb at work: plans first, then builds, shows, and counts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from npuflow.base.errors import NpuflowError
from npuflow.cli._engine import stages
from npuflow.cli._errors import show
from npuflow.cli._events import as_json as line
from npuflow.cli._events import emit
from npuflow.cli._progress import duration, view
from npuflow.flow.recipe_build import Settings, located, open_cache, plan_recipe, run_plan

if TYPE_CHECKING:
    from npuflow.flow.events import Event
    from npuflow.flow.plan import Plan
    from npuflow.flow.recipe import Recipe
    from npuflow.flow.run import Result


def run(paths: Sequence[Path], sets: Sequence[str], settings: Settings, *, as_json: bool, quiet: bool) -> int:
    """Build every recipe in turn; the worst exit code. No recipe is built before all of them are known to be right."""
    planned: list[tuple[Recipe, Plan]] = []
    worst = 0
    for path in paths:
        try:
            planned.append(prepare(path, sets, settings))
        except NpuflowError as error:
            worst = max(worst, show(error, as_json=as_json))
    if worst:
        return worst
    for recipe, plan in planned:
        worst = max(worst, _one(recipe, plan, settings, as_json=as_json, quiet=quiet, alone=len(planned) == 1))
        if worst and not settings.keep_going:
            break
    return worst


def prepare(path: Path, sets: Sequence[str], settings: Settings) -> tuple[Recipe, Plan]:
    """A recipe and its plan, or every fault."""
    from npuflow.flow.recipe import load

    recipe = load(path, sets)
    return recipe, plan_recipe(recipe, stages(), settings)


def _one(recipe: Recipe, plan: Plan, settings: Settings, *, as_json: bool, quiet: bool, alone: bool) -> int:
    shown = view(plan, quiet=quiet or as_json)

    def tell(event: Event) -> None:
        body = line(event, None if alone else recipe.name) if as_json else None
        if body is not None:
            emit(body)
        shown.show(event)

    try:
        result = run_plan(plan, recipe, open_cache(recipe, settings), settings, tell)
    except NpuflowError as error:
        shown.close()
        if error.code == "NF-BUILD-130":
            sys.stderr.write(f"{error.message}; {error.hint}\n")
            return 130
        return show(located(error, recipe, plan), as_json=as_json)
    shown.close()
    for fault in result.errors:
        show(fault)
    if not as_json:
        sys.stdout.write(_conclusion(recipe, result))
    return max((fault.exit_code for fault in result.errors), default=0)


def _conclusion(recipe: Recipe, result: Result) -> str:
    """The last lines of a build: what was done, and where the products are."""
    counts = [f"{result.ran} ran", f"{result.hit} hit"]
    counts += [f"{number} {what}" for number, what in ((result.failed, "failed"), (result.skipped, "skipped")) if number]
    if result.errors:
        head = f"{recipe.name}: failed"
    elif result.ran == 0:
        head = f"{recipe.name}: nothing to do"
    else:
        head = f"{recipe.name}: done"
    lines = [f"{head} ({', '.join(counts)}, {duration(result.seconds)})"]
    width = max((len(name) for name in result.products), default=0)
    lines += [f"  {name:<{width}}  {_near(path)}" for name, path in sorted(result.products.items())]
    return "\n".join(lines) + "\n"


def _near(path: Path) -> str:
    from npuflow.flow.recipe_files import shown_path

    return shown_path(path)
