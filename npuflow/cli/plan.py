"""What a build would do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from npuflow.cli._engine import (
    BatchOption,
    CacheOption,
    JsonOption,
    OverrideOption,
    RecipeArgs,
    SetOption,
    UntilOption,
)


@dataclass(frozen=True)
class PlanOptions:
    """What a plan takes beside its recipes."""

    sets: SetOption = None
    batch: BatchOption = None
    until: UntilOption = None
    force: Annotated[
        list[str] | None,
        typer.Option("--force", metavar="STAGE", help="Plan as if this stage were not cached."),
    ] = None
    override: OverrideOption = None
    cache: CacheOption = None
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Compare with the lock in DIR/NAME.")
    ] = None
    items: Annotated[bool, typer.Option("--items", help="List every item that is not in the cache.")] = False
    graph: Annotated[
        Path | None,
        typer.Option("--graph", metavar="FILE.svg", help="Draw the stages, with what is in the cache."),
    ] = None
    as_json: JsonOption = False


def plan(recipes: RecipeArgs, options: PlanOptions) -> None:
    """List what a build would run and why, without running it; `maybe` is what early cutoff may still spare.

    Stages that only read the model's structure are run to know more, in memory; nothing is written.
    """
    from npuflow.cli._engine import settings, with_batch
    from npuflow.cli._plan import show

    show(
        recipes, with_batch(options.sets, options.batch), settings(options),
        as_json=options.as_json, items=options.items, graph=options.graph,
    )
