"""Show a recipe with all its defaults, a stored artifact, or a step with its log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from npuflow.base.errors import UsageError
from npuflow.cli._engine import CacheOption, JsonOption, SetOption

PLOTS = "npuflow show statistics RECIPE --plot FILE.svg"


@dataclass(frozen=True)
class ShowOptions:
    """What is shown of it, and how."""

    path: Annotated[Path | None, typer.Argument(metavar="[RECIPE]", show_default=False)] = None
    log: Annotated[bool, typer.Option("--log", help="Print the log of the step.")] = False
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="DIR", help="Copy the artifact there, to read or to edit."),
    ] = None
    tensor: Annotated[
        list[str] | None,
        typer.Option("--tensor", metavar="NAME", help="With `statistics`: only this tensor, or a pattern."),
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="With `statistics`: histograms as .svg, .png or .html."),
    ] = None
    strategies: Annotated[
        bool,
        typer.Option(
            "--strategies", help="With `tiling`: what every search strategy proposed, and which plan won."
        ),
    ] = False
    as_json: JsonOption = False
    sets: SetOption = None
    cache: CacheOption = None


def show(
    what: Annotated[
        str,
        typer.Argument(
            metavar="recipe|ARTIFACT|STEP",
            help='"recipe", the digest of an artifact (x3:...), or a step: STAGE or STAGE/ITEM.',
            show_default=False,
        ),
    ],
    options: ShowOptions,
) -> None:
    """Show a recipe with every default, an artifact, or a step of the last build (with --log, its log).
    `statistics` is a table of tensors with what they suggest, `parse` lists every rewrite with its nodes,
    `verdict` is the accuracy with fixes that were measured, `precision` what was given wider codes,
    `strategy` everything that was chosen for every layer and tensor, as TOML or (--json) JSON that a
    recipe reads with `extends`."""
    o, path, sets, cache = options, options.path, options.sets, options.cache
    if what.endswith(".toml") and path is None:
        what, path = "recipe", Path(what)
    if o.as_json and what != "strategy":
        _report(what, path, o)
        return
    if o.export is not None and what != "recipe":
        from npuflow.cli._show_step import export as copy

        found = copy(what, path, sets, cache, o.export)
    elif what == "statistics" and not o.log:
        from npuflow.cli._show_statistics import text as statistics

        found = statistics(_needed(path), sets, cache, o.tensor or [], o.plot)
    elif o.strategies and what != "recipe":
        found = _strategies(what, _needed(path), sets, cache)
    elif (o.plot is not None or o.tensor) and what not in ("recipe", "verdict", "precision"):
        raise _wrong_tensor()
    elif what.startswith("x3:"):
        from npuflow.cli._show_step import artifact_text

        found = artifact_text(what, path, cache)
    else:
        found = _recipe_or_step(what, _needed(path), sets, cache, o.log, o.as_json)
    typer.echo(found, nl=False)


def _report(what: str, path: Path | None, options: ShowOptions) -> None:
    """The same as JSON lines; a picture is written too."""
    from npuflow.cli._events import emit, written
    from npuflow.cli._show_json import ShownPart, lines
    from npuflow.cli._show_step import export as copy

    if options.export is not None and what != "recipe":
        about = copy(what, path, options.sets, options.cache, options.export)
        written(options.export, "artifact", about=about.strip())
        return
    if options.strategies and what not in ("recipe", "tiling"):
        raise _wrong_strategies()
    if options.plot is not None or options.tensor:
        if what != "statistics":
            raise _wrong_tensor()
        if options.plot is not None:
            from npuflow.cli._show_statistics import text

            text(_needed(path), options.sets, options.cache, options.tensor or [], options.plot)
    o = options
    part = ShownPart(o.sets, o.cache, o.log, o.strategies, o.tensor or [])
    for line in lines(what, path if what.startswith("x3:") else _needed(path), part):
        emit(line)


def _recipe_or_step(
    what: str, path: Path, sets: SetOption, cache: CacheOption, log: bool, as_json: bool
) -> str:
    if what == "recipe":
        from npuflow.cli._show_recipe import text

        return text(path, sets)
    if what == "strategy":
        from npuflow.cli import _show_strategy as strategy

        return (strategy.as_json if as_json else strategy.text)(path, sets, cache)
    if what in ("verdict", "precision") and not log:
        from npuflow.cli import _show_verdict

        shown: str = getattr(_show_verdict, what)(path, sets, cache)
        return shown
    from npuflow.cli._show_step import step_text

    found = step_text(what, path, sets, cache, log=log)
    if what == "parse" and not log:
        from npuflow.cli._show_rewrites import text as rewrites

        found += rewrites(path, sets, cache)
    return found


def _strategies(what: str, path: Path, sets: SetOption, cache: CacheOption) -> str:
    from npuflow.cli._show_strategies import text

    if what != "tiling":
        raise _wrong_strategies()
    return text(path, sets, cache)


def _wrong_tensor() -> UsageError:
    return UsageError("--tensor and --plot are for statistics", hint=PLOTS, code="NF-USAGE-050")


def _wrong_strategies() -> UsageError:
    hint = "npuflow show tiling RECIPE --strategies"
    return UsageError("--strategies is for tiling", hint=hint, code="NF-USAGE-072")


def _needed(path: Path | None) -> Path:
    if path is None:
        raise UsageError(
            "the command needs a recipe",
            hint="npuflow show recipe RECIPE, npuflow show STAGE RECIPE [--log]", code="NF-USAGE-028",
        )
    return path
