"""A part of a model as an ONNX model of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuflow.base.wording import counted
from npuflow.cli._engine import JsonOption
from npuflow.cli.inspect import ConstantOption, DimOption, OutputOption, ShapeOption


def extract(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.", show_default=False)],
    file: Annotated[Path, typer.Option("--to", "-o", metavar="FILE", help="The ONNX file to write.")],
    begin: Annotated[
        list[str] | None,
        typer.Option("--begin", metavar="TENSOR", help="Begin at this tensor. May be repeated."),
    ] = None,
    outputs: OutputOption = None,
    inputs: ShapeOption = None,
    dims: DimOption = None,
    constants: ConstantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the part of a model between tensors as ONNX, for any runtime or for a recipe of its own.

    Model files of every format that a recipe takes. Tensors have the names that
    `npuflow inspect --nodes` shows."""
    from npuflow.base.paths import absent
    from npuflow.cli._events import written
    from npuflow.cli._files import write_file
    from npuflow.cli.inspect import bindings_of
    from npuflow.input.begin import begun
    from npuflow.input.sources import gathered
    from npuflow.onnx.export import export_model

    if not model.is_file() and not model.is_dir():
        raise absent(model, "a model file")
    _, reader, source = gathered(model)
    graph = reader.read(source, bindings_of(inputs, dims, constants, outputs)).graph
    cut = begun(graph, begin) if begin else graph
    write_file(file, export_model(cut))
    if as_json:
        ends_of = {"inputs": list(cut.inputs), "outputs": list(cut.outputs)}
        written(file, "onnx", nodes=len(cut.nodes), of=len(graph.nodes), **ends_of)
        return
    ends = f"{', '.join(cut.inputs)} -> {', '.join(cut.outputs)}"
    typer.echo(f"{file}: {len(cut.nodes)} of {counted(len(graph.nodes), 'node')}, {ends}")
