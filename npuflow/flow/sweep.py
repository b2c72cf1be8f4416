"""A recipe built at every point of a sweep: figures of its steps, and the points that no other beats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import NpuflowError, RecipeError, UsageError
from npuflow.base.tables_toml import dotted
from npuflow.flow.events import Event, StepEvent
from npuflow.flow.recipe_alike import AlikeTables
from npuflow.flow.recipe_build import Settings, output_folder, plan_build, run_plan
from npuflow.flow.recipe_files import KeyOverride
from npuflow.flow.recipe_sweep import EXAMPLE, TABLE, SweepAxis, SweepPoint, axes

if TYPE_CHECKING:
    from npuflow.base.registry import Registry
    from npuflow.flow.keys import Step
    from npuflow.flow.plan import Plan
    from npuflow.flow.recipe import Recipe
    from npuflow.flow.store import Store

FORECAST = ("run", "maybe", "hit")
"""Steps to run, those that early cutoff may spare, and those in the cache, or there once the points before
are built."""
MOST = 10_000                             # points of a sweep: more is a slip, not a plan


@dataclass
class SweepOutcome:
    """What came of a point. `figures`: numbers of its steps' summaries, as `stage.name`; of a point that was
    only planned, FORECAST."""

    point: SweepPoint
    figures: dict[str, float] = field(default_factory=dict)
    errors: list[NpuflowError] = field(default_factory=list)
    ran: int = 0
    hit: int = 0
    seconds: float = 0.0
    products: dict[str, Path] = field(default_factory=dict)


def axes_of(recipe: Recipe, over: Sequence[KeyOverride] = ()) -> list[SweepAxis]:
    """The recipe's axes, and those of `--over KEY=[...]`, which replace the recipe's of the same key."""
    found = {axis.key: axis for axis in axes(recipe.tables.get(TABLE, {}), recipe.at.child(TABLE))}
    for override in over:
        if not isinstance(override.value, list) or not override.value:
            hint = "--over 'target.memory.local_bytes=[131072, 262144]'"
            raise UsageError(
                f'--over "{override.text}" gives no list of values', hint=hint, code="NF-USAGE-060",
            )
        found[dotted(override.keys)] = SweepAxis(dotted(override.keys), tuple(override.value))
    if not found:
        because = "the recipe has no [sweep] and there is no --over"
        raise UsageError("nothing to sweep", because=because, hint=f"[sweep]\n{EXAMPLE}", code="NF-USAGE-061")
    number = prod(len(axis.values) for axis in found.values())
    if number > MOST:
        raise UsageError(
            f"{number} combinations, {MOST} at most", hint="fewer values, or two sweeps", code="NF-USAGE-062",
        )
    return list(found.values())


def planned(
    read: Callable[[tuple[KeyOverride, ...]], Recipe],
    points: Sequence[SweepPoint],
    registry: Registry,
    settings: Settings,
) -> list[tuple[SweepPoint, Recipe, Plan]]:
    """Every point's recipe and plan; the faults of all of them at once, equal ones once."""
    found: list[tuple[SweepPoint, Recipe, Plan]] = []
    wrong, alike = dict[Any, NpuflowError](), AlikeTables()
    for point in points:
        try:
            recipe = read(point.overrides)
            recipe.alike = alike
            before = [plan for _, _, plan in found]
            found.append((point, recipe, plan_build(recipe, registry, settings, before)))
        except NpuflowError as error:
            for fault in error.faults():
                wrong.setdefault((fault.message, fault.where, fault.because), fault)
    if wrong:
        raise RecipeError(tuple(wrong.values()))
    return found


def forecast(
    planned: Sequence[tuple[SweepPoint, Recipe, Plan]], store: Store, settings: Settings
) -> Iterator[SweepOutcome]:
    """How many steps every point's build would run, one after the other, without running them."""
    from npuflow.flow.ahead import Ahead
    from npuflow.flow.dry import dry
    from npuflow.flow.plan import Plan

    ahead, begun = Ahead(store), set[str | None]()
    known: dict[Any, Step] = {}
    for point, recipe, own in planned:
        # whose keys are made once; a build reads files anew at each point, so it has steps of its own
        plan = Plan(tuple(known.setdefault(_alike(step), step) for step in own), recipe, own.off)
        steps = dry(plan, store, force=settings.force, ahead=ahead, reasons=False).steps
        run = {step.key for step in steps if step.status == "run"} - begun
        maybe = sum(step.status == "maybe" for step in steps)
        begun |= run
        counts = len(run), maybe, len(steps) - len(run) - maybe
        yield SweepOutcome(point, dict(zip(FORECAST, counts, strict=True)))


def _alike(step: Step) -> tuple[Any, ...]:
    """Equal for steps of plans of one sweep with the same tables and inputs."""
    tables = [(name, id(table)) for name, table in (*step.configs.items(), *step.listing_configs.items())]
    return step.name, *tables, *step.inputs.items(), step.override


def built(
    planned: Sequence[tuple[SweepPoint, Recipe, Plan]], store: Store, settings: Settings,
    on_event: Callable[[SweepPoint, Event], None] | None = None,
) -> Iterator[SweepOutcome]:
    """Build one point after the other; one that fails has the error in its outcome, and the sweep goes on."""
    for point, recipe, plan in planned:
        outcome = SweepOutcome(point)

        def tell(event: Event, point: SweepPoint = point, outcome: SweepOutcome = outcome) -> None:
            if isinstance(event, StepEvent) and event.item is None:
                outcome.figures.update(_numbers(event))
            if on_event is not None:
                on_event(point, event)

        own = replace(settings, out=output_folder(recipe, settings) / TABLE)
        recipe.name = point.name
        result = run_plan(plan, recipe, store, own, tell)
        outcome.errors, outcome.products = list(result.errors), dict(result.products)
        outcome.ran, outcome.hit, outcome.seconds = result.ran, result.hit, result.seconds
        yield outcome


def _numbers(event: StepEvent) -> dict[str, float]:
    return {
        f"{event.stage}.{name}": value
        for name, value in event.summary.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def front(rows: Sequence[Mapping[str, float]], goals: Mapping[str, bool]) -> list[bool]:
    """Which rows no other row beats: at least as good by every goal and better by one.
    `goals`: name -> more is better."""
    signs = [(name, -1.0 if more else 1.0) for name, more in goals.items()]
    scores = [
        [sign * row[name] for name, sign in signs] if all(name in row for name, _ in signs) else None
        for row in rows
    ]

    def beaten(mine: Sequence[float]) -> bool:
        return any(
            o is not None and o != mine and all(a <= b for a, b in zip(o, mine, strict=True)) for o in scores
        )

    return [score is not None and not beaten(score) for score in scores]
