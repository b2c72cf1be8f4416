"""One page about a folder of recipes on several targets: scores, cycles, energy, warnings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from npuflow.cli._engine import CacheOption, JsonOption, SetOption


@dataclass(frozen=True)
class ZooOptions:
    """What a zoo takes beside its folder."""

    targets: Annotated[
        str | None,
        typer.Option(
            "--targets", metavar="NAMES",
            help="Targets with commas between, in place of those of each recipe's \\[sweep] or its own.",
        ),
    ] = None
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="NAMES",
            help="Networks by the names of their recipes, with commas between; face-*: all that begin so. "
            "May be repeated.",
        ),
    ] = None
    sets: SetOption = None
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where zoo.md and zoo.svg go; FOLDER/out by default."),
    ] = None
    cache: CacheOption = None
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Steps at once, as for build.")
    ] = None
    scheduler: Annotated[str | None, typer.Option("--scheduler", help="As for build.")] = None
    as_json: JsonOption = False


def zoo(
    options: ZooOptions,
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="A folder of recipes, or one recipe.")
    ] = Path("recipes/zoo"),
) -> None:
    """Build every recipe of a folder for several targets, and write one page: a row for each network on each
    target. What is built already is not built again; what fails is a row with its error."""
    from npuflow.cli._engine import settings
    from npuflow.cli._zoo import run

    wanted = (options.targets or "").split(",") if options.targets is not None else []
    only = [name for text in options.only or () for name in text.split(",")]
    out = (options.out or (folder if folder.is_dir() else folder.parent) / "out").absolute()
    built = settings(cache=options.cache, jobs=options.jobs, scheduler=options.scheduler, publish=False)
    raise typer.Exit(run(folder, wanted, only, options.sets or [], (built, out), as_json=options.as_json))
