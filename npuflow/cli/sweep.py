"""One recipe built for every combination of some keys' values, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuflow.cli._engine import (
    BaselineOption,
    BytesOption,
    CacheOption,
    CyclesOption,
    DropOption,
    EnergyOption,
    JsonOption,
    RecipeArg,
    RecordOption,
    SetOption,
    UntilOption,
)

OverOption = Annotated[
    list[str] | None,
    typer.Option(
        "--over",
        metavar="KEY=[...]",
        help="A key and its values, in addition to \\[sweep]: --over "
        "'target.memory.local_bytes=\\[131072, 262144]'. "
        "May be repeated.",
    ),
]


def sweep(
    recipe: RecipeArg,
    over: OverOption = None,
    sets: SetOption = None,
    goals: Annotated[
        list[str] | None,
        typer.Option(
            "--goal",
            metavar="NAME",
            help="What decides which points are best: a figure or a key, the less the better; max:NAME, the "
            "more. "
            "May be repeated.",
        ),
    ] = None,
    show: Annotated[
        str | None,
        typer.Option("--show", metavar="NAMES", help="Columns, with commas between; all of them: all."),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write every figure of every point.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the first two goals: .svg, .png or .html."),
    ] = None,
    until: UntilOption = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Steps at once, as for build.")
    ] = None,
    scheduler: Annotated[str | None, typer.Option("--scheduler", help="As for build.")] = None,
    cache: CacheOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Put the products into DIR/NAME/sweep.")
    ] = None,
    baseline: BaselineOption = None,
    max_drop: DropOption = 0.3,
    max_cycles: CyclesOption = 1.0,
    max_bytes: BytesOption = 1.0,
    max_energy: EnergyOption = 1.0,
    record: RecordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build a recipe for every combination of the values of some keys, a target's parameters among them; what
    they have in common runs once. A table of the figures, and the points that no other beats."""
    from npuflow.cli._engine import gate_of, settings
    from npuflow.cli._sweep import SweepView, run

    chosen = settings(cache=cache, jobs=jobs, scheduler=scheduler, until=until, out=out)
    gate = gate_of(baseline, record, (max_drop, max_cycles, max_bytes, max_energy), until)
    wanted = SweepView(tuple(goals or ()), show, csv, plot, as_json, gate)
    raise typer.Exit(run(recipe, sets or [], over or [], chosen, wanted))
