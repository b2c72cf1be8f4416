"""Products in formats that other tools read: QDQ ONNX, calibration tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuflow.cli._engine import CacheOption, RecipeArg, SetOption

if TYPE_CHECKING:
    from npuflow.flow.artifact import Reader

app = typer.Typer(no_args_is_help=True)

OutOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write it.", show_default=False)
]


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
def thresholds(
    recipe: RecipeArg,
    output: OutOption,
    chosen: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="toml, json, or another tool's; `npuflow export formats` lists them.",
        ),
    ] = None,
    codes: Annotated[bool, typer.Option("--codes", help="With scales and zero points (toml, json).")] = False,
    weights: Annotated[
        bool, typer.Option("--weights", help="With the weights' scales (toml, json, aimet).")
    ] = False,
    sets: SetOption = None,
    cache: CacheOption = None,
) -> None:
    """The range of every tensor, as a table to read, to edit and put into a recipe ([ranges]
    file), or for another tool."""
    from npuflow.cli._export_table import write

    told = write(recipe, output, chosen, codes=codes, weights=weights, sets=sets or [], cache=cache)
    typer.echo("\n".join(told))


@app.command()
def formats() -> None:
    """The formats of calibration tables, and what each cannot express."""
    from npuflow.exchange import EXCHANGE

    for name in EXCHANGE.names():
        typer.echo(f"{name:<20} {EXCHANGE[name].suffix:<22} {EXCHANGE[name].tells or 'says everything'}")


def _made(path: Path, stage: str, sets: list[str], cache: Path | None) -> Reader:
    """The artifact of a stage, built if it must be."""
    from npuflow.cli._export_table import made

    return made(path, stage, sets, cache)[0]
