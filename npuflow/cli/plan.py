"""What a build would do."""

from __future__ import annotations

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


def plan(
    recipes: RecipeArgs,
    sets: SetOption = None,
    batch: BatchOption = None,
    until: UntilOption = None,
    force: Annotated[
        list[str] | None,
        typer.Option("--force", metavar="STAGE", help="Plan as if this stage were not cached."),
    ] = None,
    override: OverrideOption = None,
    cache: CacheOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Compare with the lock in DIR/NAME.")
    ] = None,
    items: Annotated[bool, typer.Option("--items", help="List every item that is not in the cache.")] = False,
    graph: Annotated[
        Path | None,
        typer.Option("--graph", metavar="FILE.svg", help="Draw the stages, with what is in the cache."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List what a build would run and why, without running it; `maybe` is what early cutoff may still spare.

    Stages that only read the model's structure are run to know more, in memory; nothing is written.
    """
    from npuflow.cli._engine import settings, with_batch
    from npuflow.cli._plan import show

    chosen = settings(cache=cache, until=until, force=force, override=override, out=out)
    show(recipes, with_batch(sets, batch), chosen, as_json=as_json, items=items, graph=graph)
