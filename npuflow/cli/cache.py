"""Look after the cache: stats, verify, gc, push."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuflow.cli._engine import CacheOption, JsonOption, SetOption

RecipeOption = Annotated[
    Path | None,
    typer.Option("--recipe", metavar="RECIPE", help="The cache of this recipe.", show_default=False),
]

app = typer.Typer(no_args_is_help=True)


@app.command()
def stats(
    recipe: RecipeOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print where the cache is and what it contains."""
    from npuflow.cli._cache import show_stats

    show_stats(recipe, cache, as_json=as_json)


@app.command()
def verify(
    recipe: RecipeOption = None,
    rerun: Annotated[
        str | None,
        typer.Option("--rerun", metavar="STAGE", help="Run this stage of --recipe again and compare."),
    ] = None,
    sets: SetOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read every byte of the cache and set aside what is damaged; --rerun looks for a
    stage that is not deterministic."""
    from npuflow.cli._cache import verify_all, verify_stage

    if rerun is None:
        raise typer.Exit(verify_all(recipe, cache, as_json=as_json))
    raise typer.Exit(verify_stage(rerun, recipe, sets or [], cache, as_json=as_json))


@app.command()
def gc(
    grace: Annotated[
        float | None,
        typer.Option(
            "--grace", metavar="HOURS", min=0, show_default=False,
            help="Keep what was used since; 24 if absent, with --max-size 0, of a remote cache 1.",
        ),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option(
            "--max-size", metavar="SIZE",
            help="Remove what was not used for longest until no more than this is left, as 20GB.",
        ),
    ] = None,
    remote: Annotated[
        str | None,
        typer.Option("--remote", metavar="URL", help="With --max-size: of this shared cache instead."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Only print what would be removed.")
    ] = False,
    recipe: RecipeOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove what no build's output, no running build and no recent use needs; with --max-size, what was not
    used for longest and no running build uses."""
    from npuflow.cli._cache import collect, limit

    seconds = None if grace is None else grace * 3600
    if max_size is None and remote is None:
        raise typer.Exit(collect(recipe, cache, seconds, dry=dry_run, as_json=as_json))
    raise typer.Exit(limit((recipe, cache, remote), max_size, seconds, dry=dry_run, as_json=as_json))


@app.command()
def push(
    remote: Annotated[
        str | None,
        typer.Option("--remote", metavar="URL", help="Where to; else \\[build] remote of --recipe."),
    ] = None,
    recipe: RecipeOption = None,
    last_build: Annotated[
        bool, typer.Option("--last-build", help="Only what the last finished build of --recipe used.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only count what would be sent.")] = False,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """Upload the local cache to the shared cache behind it. What is there already is skipped, so that a push
    that was interrupted resumes where it stopped.
    """
    from npuflow.cli._cache import send

    send(recipe, cache, remote, last=last_build, dry=dry_run, as_json=as_json)
