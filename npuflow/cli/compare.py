"""Compare two runs tensor by tensor: npz files, or a program and a model run on the same inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuflow.base.errors import UsageError
from npuflow.cli._slow import Working

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npuflow.cli._compared import ReadSide
    from npuflow.compare.sides import TensorComparison


def compare(
    first: Annotated[
        Path,
        typer.Argument(metavar="A", help="An npz, a .npu program or an .onnx model.", show_default=False),
    ],
    second: Annotated[
        Path, typer.Argument(metavar="B", help="The same, compared with A.", show_default=False)
    ],
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--inputs", "-i", help="What programs and models are run on; may be repeated."),
    ] = None,
    all_tensors: Annotated[
        bool, typer.Option("--all", help="Every tensor that both have, not only outputs.")
    ] = False,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Differences up to this count as equal.")
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per tensor.")] = False,
) -> None:
    """Per tensor, in the network's order: elements that differ, largest difference, cosine, SQNR; then the
    first layer, tile and element to diverge (exit code 1). What both have as codes is compared as codes."""
    from npuflow.cli._compared import sides
    from npuflow.cli._events import emit
    from npuflow.compare.sides import compared

    with Working(f'comparing "{first}" and "{second}"'):
        both, notes = sides((first, second), inputs or [], all_tensors)
        found = compared(both[0], both[1], tolerance)
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    if not found:
        raise UsageError(f'"{first}" and "{second}" have no tensor in common', code="NF-USAGE-035")
    diverged = [one for one in found if one.difference.diverges(tolerance)]
    if as_json:
        for one in found:
            emit({"event": "comparison", **_plain(one, both if one in diverged[:1] else ())})
    else:
        _table(found)
        typer.echo(f"{len(found) - len(diverged)} of {len(found)} tensors agree")
        if diverged:
            typer.echo("\n".join(_where(diverged[0], both)))
    if diverged:
        raise typer.Exit(1)


def _plain(one: TensorComparison, sides: Sequence[ReadSide]) -> dict[str, Any]:
    """A tensor as JSON has it; the first that diverges with its tile."""
    from dataclasses import asdict

    from npuflow.cli._compared import made_by

    made = made_by(one.difference, sides)
    where = asdict(made.tile) if made is not None else None
    more = {"loops": [asdict(step) for step in made.loops]} if made is not None and made.loops else {}
    return {**asdict(one.difference), "layer": one.layer, "tile": where, **more}


def _where(one: TensorComparison, sides: Sequence[ReadSide]) -> list[str]:
    """The first divergence: tensor and layer, element with both values, and the tile that made it."""
    from npuflow.cli._compared import made_by
    from npuflow.program.loop_steps import said

    found = one.difference
    lines = [
        f'first divergence: "{found.name}" {found.note}'.rstrip()
        + (f", made by {one.layer}" if one.layer else "")
    ]
    if found.index is not None and found.sides is not None:
        kind = "codes " if found.codes else ""
        a, b = (f"{v:.9g}" if isinstance(v, float) else str(v) for v in found.sides)
        lines.append(f"  element  {list(found.index)}: {kind}{a} and {b}")
    made = made_by(found, sides)
    if made is not None:
        part = made.tile
        box = ", ".join(f"{a}:{b}" for a, b in part.box)
        of = f" of sample {made.sample}" if made.sample else ""
        lines.append(
            f"  tile     {part.number} of {part.count}{of}: [{box}], "
            f"command {part.command} of core {part.core}"
        )
        lines += [f"  loop     {said(made.loops)}"] if made.loops else []
    return lines


def _table(found: Sequence[TensorComparison]) -> None:
    width = min(48, max(6, *(len(one.difference.name) for one in found)))
    typer.echo(
        f"{'tensor':{width}s} {'elements':>10s} {'different':>10s} {'max abs':>11s} "
        f"{'cosine':>10s} {'SQNR dB':>8s}"
    )
    for d in (one.difference for one in found):
        name = d.name if len(d.name) <= width else "…" + d.name[-(width - 1) :]
        level = "exact" if d.sqnr is None else f"{d.sqnr:.2f}"
        numbers = f"{d.elements:10d} {d.different:10d} {d.max_abs:11.4g} {d.cosine:10.6f} {level:>8s}"
        typer.echo(f"{name:{width}s} {numbers} {'codes' if d.codes else d.note}".rstrip())
