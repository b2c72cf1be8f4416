"""Products in formats that other tools read: QDQ ONNX, calibration tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuflow.cli._engine import CacheOption, RecipeArg, SetOption

if TYPE_CHECKING:
    from npuflow.flow.artifact import Reader

app = typer.Typer(no_args_is_help=True)

OutOption = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write it.", show_default=False)]


@app.command()
def qdq(recipe: RecipeArg, output: OutOption, sets: SetOption = None, cache: CacheOption = None) -> None:
    """The quantised network as QDQ ONNX, for any ONNX runtime."""
    from npuflow.stages.qdq import FILE

    reader = _made(recipe, "qdq", sets or [], cache)
    output.write_bytes(reader.bytes(FILE))
    typer.echo(f"wrote {output}")
    for note in reader.json("notes"):
        typer.echo(f"note: {note}")


@app.command()
def thresholds(recipe: RecipeArg, output: OutOption, sets: SetOption = None, cache: CacheOption = None) -> None:
    """The threshold of every tensor as JSON. To edit and feed back: npuflow show thresholds RECIPE --export DIR, --override."""
    import json

    rows = _made(recipe, "thresholds", sets or [], cache).json("thresholds")
    output.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
    typer.echo(f"wrote {output}: {len(rows)} tensors")


def _made(path: Path, stage: str, sets: list[str], cache: Path | None) -> Reader:
    """The artifact of a stage, built if it must be."""
    from npuflow.cli._engine import settings, stages
    from npuflow.flow.recipe import load
    from npuflow.flow.recipe_build import open_cache, plan_recipe, run_plan

    recipe = load(path, sets)
    chosen = settings(cache=cache, until=stage)
    plan, store = plan_recipe(recipe, stages(), chosen), open_cache(recipe, chosen)
    result = run_plan(plan, recipe, store, chosen).check()
    return store.open(result.refs[stage].digest)
