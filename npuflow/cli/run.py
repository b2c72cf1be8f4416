"""Run a program, an ONNX or a QDQ ONNX model on inputs from npz, npy or picture
files; outputs go to an npz."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    program: Annotated[
        Path, typer.Argument(metavar="PROGRAM", help="A .npu program or an .onnx model.", show_default=False)
    ],
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...",
            help="An npz of named arrays, or one npy or picture per input.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The npz file to write.")] = Path("outputs.npz"),
    dump_all: Annotated[bool, typer.Option("--dump-all", help="Also every intermediate tensor.")] = False,
    batch: Annotated[int, typer.Option("--batch", min=1, max=64, help="Samples simulated together.")] = 8,
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help="Refuse the program if it was not compiled for this target."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Run a program on the simulator, or a model on onnxruntime. Inputs with a leading
    axis of samples run one by one."""
    import json

    from npuflow.cli._run_model import load_inputs, open_model, picture_note, save_outputs

    if target is not None:
        from npuflow.cli import targets
        from npuflow.engine.program.container import load_program, require_target

        require_target(load_program(program), targets._read(targets._path(target)), target)
    model = open_model(program, batch, dump_all)
    for note in (*model.notes, picture_note(inputs, model.preparation)):
        if note:
            typer.echo(f"note: {note}", err=True)
    samples, stacked = load_inputs(inputs, model.ports, model.preparation)
    outputs = model.run(samples)
    written = save_outputs(out, outputs, stacked)
    if as_json:
        typer.echo(json.dumps({"out": str(out), "samples": len(samples), "tensors": written}))
        return
    typer.echo(f"{len(samples)} sample{'s' if len(samples) != 1 else ''}, {len(written)} tensors -> {out}")
    for name, shape in list(written.items())[:20]:
        typer.echo(f"  {name}  {'x'.join(map(str, shape))}")
