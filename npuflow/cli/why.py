"""Why a step would run, or ran."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuflow.cli._engine import CacheOption, JsonOption, RecipeArg, SetOption


def why(
    step: Annotated[
        str, typer.Argument(metavar="STEP", help="A stage, or STAGE/ITEM; or accuracy.", show_default=False)
    ],
    recipe: RecipeArg,
    sets: SetOption = None,
    cache: CacheOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Compare with the lock in DIR/NAME.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a step would run (or, if it would not, why it ran last): what changed, and
    the chain that leads there. `why accuracy RECIPE` splits the noise of the outputs by layer and cause."""
    from npuflow.cli._engine import settings

    if step == "accuracy":
        from npuflow.cli._why_accuracy import accuracy

        found = accuracy(recipe, sets or [], settings(cache=cache, out=out))
    else:
        from npuflow.cli._why import explain

        found = explain(step, recipe, sets or [], settings(cache=cache, out=out))
    if as_json:
        from npuflow.cli._events import emit

        for line in found.lines:
            emit(line)
    else:
        typer.echo(found.text, nl=False)
