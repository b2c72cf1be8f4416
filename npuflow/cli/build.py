"""Build recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuflow.cli._engine import (
    BaselineOption,
    BatchOption,
    BytesOption,
    CacheOption,
    CyclesOption,
    DropOption,
    EnergyOption,
    JsonOption,
    OverrideOption,
    RecipeArgs,
    RecordOption,
    SetOption,
    UntilOption,
)

ForceOption = Annotated[
    list[str] | None, typer.Option("--force", metavar="STAGE", help="Run this stage even if it is cached.")
]
KeepGoingOption = Annotated[
    bool, typer.Option("--keep-going", "-k", help="After a failure, build what does not depend on it.")
]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, help="Steps at once; as many as there are cores by default."),
]


def build(
    context: typer.Context,
    recipes: RecipeArgs,
    sets: SetOption = None,
    batch: BatchOption = None,
    until: UntilOption = None,
    force: ForceOption = None,
    override: OverrideOption = None,
    keep_going: KeepGoingOption = False,
    jobs: JobsOption = None,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", help="threads, processes[:N], or a dask scheduler's tcp://host:port."),
    ] = None,
    cache: CacheOption = None,
    remote: Annotated[
        str | None, typer.Option("--remote", metavar="URL", help="A shared cache: a folder or an fsspec URL.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Put products and lock into DIR/NAME.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="The same as `plan`: run nothing.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if an output is too far from the float model's.")
    ] = False,
    baseline: BaselineOption = None,
    max_drop: DropOption = 0.3,
    max_cycles: CyclesOption = 1.0,
    max_bytes: BytesOption = 1.0,
    max_energy: EnergyOption = 1.0,
    record: RecordOption = None,
    as_json: JsonOption = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only warnings, errors and the result.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="A line for every step.")] = False,
) -> None:
    """Build recipes: run what is not in the cache, and write the products."""
    from npuflow.cli._build import OutputOptions, run
    from npuflow.cli._engine import gate_of, settings, typed, with_batch

    sets = with_batch(sets, batch)
    chosen = settings(
        cache=cache, remote=remote, jobs=jobs, scheduler=scheduler, until=until, keep_going=keep_going,
        force=force, override=override, out=out,
    )
    if dry_run:
        from npuflow.cli._plan import show

        show(recipes, sets or [], chosen, as_json=as_json)
        return
    gate = gate_of(baseline, record, (max_drop, max_cycles, max_bytes, max_energy), until)
    how = OutputOptions(as_json, quiet, strict, verbose, gate)
    raise typer.Exit(run(recipes, sets or [], chosen, how, typed(context)))
