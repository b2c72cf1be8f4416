"""Compare two runs tensor by tensor: npz files, or a program and a model run on the same inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuflow.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npuflow.cli._run_model import Model
    from npuflow.engine.difference import Difference


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="An npz, a .npu program or an .onnx model.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="B", help="The same, compared with A.", show_default=False)],
    inputs: Annotated[
        list[Path] | None, typer.Option("--inputs", "-i", help="What programs and models are run on; may be repeated.")
    ] = None,
    all_tensors: Annotated[bool, typer.Option("--all", help="Every tensor that both have, not only outputs.")] = False,
    tolerance: Annotated[float, typer.Option("--tolerance", help="Differences up to this count as equal.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per tensor.")] = False,
) -> None:
    """Per tensor: elements that differ, largest difference, cosine, SQNR; and the first tensor to diverge (then exit 1)."""
    import json
    from dataclasses import asdict

    from npuflow.engine.difference import differences

    found = differences(*_tensors((first, second), inputs, all_tensors))
    if not found:
        raise UsageError(f'"{first}" and "{second}" have no tensor in common')
    for difference in found:
        if as_json:
            plain = asdict(difference).items()
            typer.echo(json.dumps({k: str(v) if v in (float("inf"), -float("inf")) else v for k, v in plain}))
    diverged = [d for d in found if d.different and (d.max_abs > tolerance or d.note)]
    if not as_json:
        _table(found)
        typer.echo(f"{len(found) - len(diverged)} of {len(found)} tensors agree")
        if diverged:
            typer.echo(f'first divergence: "{diverged[0].name}" {diverged[0].note}'.rstrip())
    if diverged:
        raise typer.Exit(1)


def _tensors(paths: tuple[Path, Path], inputs: list[Path] | None, everything: bool) -> list[dict[str, Any]]:
    """Named arrays of each: of an npz, or of a program or model run on the inputs, prepared as the program among them says."""
    from npuflow.cli._run_model import open_model, picture_note, read_npz

    for path in paths:
        if path.suffix.lower() not in (".npz", ".npu", ".onnx"):
            raise UsageError(f'"{path}" cannot be compared', hint="an .npz of arrays, a .npu program or an .onnx model")
        if path.suffix != ".npz" and not inputs:
            raise UsageError(f'"{path}" has to be run', hint="give --inputs FILE")
    held = [None if p.suffix == ".npz" else open_model(p, dump=everything, real=True) for p in paths]
    models = [m for m in held if m is not None]
    preparation = next((m.preparation for m in models if m.preparation is not None), None)
    notes = [note for m in models for note in m.notes] + ([picture_note(inputs or [], preparation)] if models else [])
    for note in dict.fromkeys(n for n in notes if n):
        typer.echo(f"note: {note}", err=True)
    return [read_npz(p, ()) if m is None else _ran(m, inputs or [], preparation) for p, m in zip(paths, held, strict=True)]


def _ran(model: Model, inputs: list[Path], preparation: Mapping[str, Any] | None) -> dict[str, Any]:
    """The outputs for the samples, one after the other."""
    from npuflow.cli._run_model import joined, load_inputs

    # a program runs samples one by one where a model with a free axis may take them all at once: their outputs join alike
    return joined(model.run(load_inputs(inputs, model.ports, preparation)[0]))


def _table(found: tuple[Difference, ...]) -> None:
    width = min(48, max(6, *(len(d.name) for d in found)))
    typer.echo(f"{'tensor':{width}s} {'elements':>10s} {'different':>10s} {'max abs':>11s} {'cosine':>10s} {'SQNR dB':>8s}")
    for d in found:
        name = d.name if len(d.name) <= width else "…" + d.name[-(width - 1) :]
        numbers = f"{d.elements:10d} {d.different:10d} {d.max_abs:11.4g} {d.cosine:10.6f} {d.sqnr:8.2f}"
        typer.echo(f"{name:{width}s} {numbers} {d.note}".rstrip())
