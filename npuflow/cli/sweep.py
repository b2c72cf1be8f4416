"""One recipe built for every combination of some keys' values, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from npuflow.cli._engine import (
    CacheOption,
    GateOptions,
    JsonOption,
    RecipeArg,
    SetOption,
    UntilOption,
)


@dataclass(frozen=True)
class SweepOptions:
    """What a sweep takes beside its recipe."""

    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            metavar="KEY=[...]",
            help="A key and its values, in addition to \\[sweep]: --over "
            "'target.memory.local_bytes=\\[131072, 262144]'. "
            "May be repeated.",
        ),
    ] = None
    sets: SetOption = None
    goals: Annotated[
        list[str] | None,
        typer.Option(
            "--goal",
            metavar="NAME",
            help="What decides which points are best: a figure or a key, the less the better; max:NAME, the "
            "more. "
            "May be repeated.",
        ),
    ] = None
    show: Annotated[
        str | None,
        typer.Option("--show", metavar="NAMES", help="Columns, with commas between; all of them: all."),
    ] = None
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write every figure of every point.")
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the first two goals: .svg, .png or .html."),
    ] = None
    until: UntilOption = None
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Steps at once, as for build.")
    ] = None
    scheduler: Annotated[str | None, typer.Option("--scheduler", help="As for build.")] = None
    cache: CacheOption = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Count what every point would run; run nothing.")
    ] = False
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Put the products into DIR/NAME/sweep.")
    ] = None
    as_json: JsonOption = False


def sweep(recipe: RecipeArg, options: SweepOptions, limits: GateOptions) -> None:
    """Build a recipe for every combination of the values of some keys, a target's parameters among them; what
    they have in common runs once. A table of the figures, and the points that no other beats."""
    from npuflow.cli._engine import settings
    from npuflow.cli._sweep import SweepView, run

    wanted = SweepView(
        tuple(options.goals or ()), options.show, options.csv, options.plot, options.as_json,
        limits.gate(options.until), options.dry_run,
    )
    raise typer.Exit(run(recipe, options.sets or [], options.over or [], settings(options), wanted))
