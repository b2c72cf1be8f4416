"""A commented recipe for a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuflow.base.errors import UsageError
from npuflow.cli._engine import stages


def new(
    model: Annotated[str, typer.Argument(metavar="MODEL.onnx", help="The model, or pkg:NAME/FILE.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The recipe to write; MODEL.toml here if not given, - to print.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="The target to write into it.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
) -> None:
    """Write a commented recipe for a model, with the model's own inputs and outputs in it."""
    from npuflow.cli._template import write

    path = output if output is not None else Path(Path(model).stem + ".toml")
    printing = str(path) == "-"
    if path.exists() and not force and not printing:
        raise UsageError(f'"{path}" is there already', hint="--output OTHER.toml, or --force to write over it")
    text = write(model, Path.cwd() if printing else path.parent, stages(), target)
    if printing:
        typer.echo(text, nl=False)
    else:
        path.write_text(text)
        typer.echo(f"wrote {path}; next: npuflow plan {path}")
