"""Build recipes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from npuflow.cli._engine import (
    BatchOption,
    CacheOption,
    GateOptions,
    JsonOption,
    OverrideOption,
    RecipeArgs,
    SetOption,
    UntilOption,
)


@dataclass(frozen=True)
class BuildOptions:
    """What a build takes beside its recipes."""

    sets: SetOption = None
    batch: BatchOption = None
    until: UntilOption = None
    force: Annotated[
        list[str] | None,
        typer.Option("--force", metavar="STAGE", help="Run this stage even if it is cached."),
    ] = None
    override: OverrideOption = None
    keep_going: Annotated[
        bool, typer.Option("--keep-going", "-k", help="After a failure, build what does not depend on it.")
    ] = False
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Steps at once; as many as there are cores by default."),
    ] = None
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", help="threads, processes[:N], or a dask scheduler's tcp://host:port."),
    ] = None
    cache: CacheOption = None
    remote: Annotated[
        str | None, typer.Option("--remote", metavar="URL", help="A shared cache: a folder or an fsspec URL.")
    ] = None
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Put products and lock into DIR/NAME.")
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="The same as `plan`: run nothing.")
    ] = False
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if an output is too far from the float model's.")
    ] = False
    as_json: JsonOption = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only warnings, errors and the result.")
    ] = False
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="A line for every step.")] = False
    profile: Annotated[
        bool, typer.Option("--profile", help="A table of stages at the end: time, memory, cache.")
    ] = False


def build(
    context: typer.Context, recipes: RecipeArgs, options: BuildOptions, limits: GateOptions
) -> None:
    """Build recipes: run what is not in the cache, and write the products."""
    from npuflow.cli._build import OutputOptions, run
    from npuflow.cli._engine import settings, typed, with_batch

    sets = with_batch(options.sets, options.batch)
    chosen = settings(options)
    if options.dry_run:
        from npuflow.cli._plan import show

        show(recipes, sets, chosen, as_json=options.as_json)
        return
    how = OutputOptions(
        options.as_json, options.quiet, options.strict, options.verbose, options.profile,
        limits.gate(options.until),
    )
    raise typer.Exit(run(recipes, sets, chosen, how, typed(context)))
