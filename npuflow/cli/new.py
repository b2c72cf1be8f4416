"""A commented recipe for a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuflow.base.errors import UsageError
from npuflow.cli._engine import JsonOption, stages
from npuflow.cli._files import write_file
from npuflow.cli._new_shapes import FixedSizes


def new(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="The model, or pkg:NAME/FILE.", show_default=False)
    ],
    fixed: FixedSizes,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Samples: a folder (with parts calib* and eval*), a file, or a pattern.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The recipe to write; MODEL.toml here if not given, - to print."),
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="The target to write into it.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a commented recipe that builds: the model's inputs and outputs, its data with the steps that make
    them fit.
    """
    from npuflow.cli._new import text

    path = output if output is not None else Path(Path(model).stem + ".toml")
    printing = str(path) == "-"
    if path.exists() and not force and not printing:
        raise UsageError(
            f'"{path}" is there already', hint="--output OTHER.toml, or --force to write over it",
            code="NF-USAGE-044",
        )
    if not printing and not path.parent.is_dir():
        raise UsageError(f'no folder "{path.parent}" to write {path.name} into', code="NF-USAGE-045")
    folder = Path.cwd() if printing else path.parent
    written = text(model, folder, stages(), target, fixed, data)
    if printing:
        typer.echo(written, nl=False)
        return
    write_file(path, written)
    open_points = sum(line.startswith("# CHECK: ") for line in written.splitlines())
    if as_json:
        from npuflow.cli._events import written as told

        checks = [line.removeprefix("# CHECK: ") for line in written.splitlines() if "# CHECK: " in line]
        told(path, "recipe", checks)
        return
    note = (
        f" ({open_points} line{'s' if open_points > 1 else ''} with CHECK to look at)" if open_points else ""
    )
    from npuflow.cli._disk import stated
    from npuflow.input.sources import model_file

    room = stated(model_file(model, Path.cwd()).path)
    typer.echo(f"wrote {path}; next: npuflow plan {path}{note}{room}")
