"""A board's dumps against golden tensors: the first layer, tile, command and element that differ, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuflow.cli._engine import ProgramArgument
from npuflow.cli._slow import Working

if TYPE_CHECKING:
    from npuflow.checks.board.locate import Finding


def verify(
    program: ProgramArgument,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="What `npuflow golden` wrote.", show_default=False)
    ],
    dump: Annotated[
        Path | None,
        typer.Option(
            "--dump",
            metavar="PATH",
            help="The dumps, codes or real numbers: an npz or a folder; else the folder `dump` of DIR.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Compare dumps, some or all tensors, with golden ones: codes exactly, real numbers to half a code. Exit
    code 1 where something differs."""
    from dataclasses import asdict

    from npuflow.base.digest import bytes_digest
    from npuflow.base.errors import DataError
    from npuflow.checks.board.dump import dumps
    from npuflow.checks.board.golden import load
    from npuflow.checks.board.locate import first_difference
    from npuflow.cli._events import emit
    from npuflow.program.container import load_program

    with Working(f'reading "{folder}"'):
        loaded, golden = load_program(program), load(folder)
    if bytes_digest(loaded.to_bytes()) != golden.program:
        raise DataError(
            f'the golden tensors in "{folder}" are of another program',
            hint="run npuflow golden again",
            code="NF-DATA-094",
        )
    place = dump or folder / "dump"
    with Working(f'reading "{place}"'):
        held = dumps(golden, place)
    if not held:
        names = ", ".join(f"{stem}.bin" for stem in list(golden.files.values())[:3])
        raise DataError(
            f'"{place}" holds no dump of a tensor of the program',
            hint=f"files are named {names}, ...; see {folder / 'golden.json'}",
            code="NF-DATA-096",
        )
    with Working(f"comparing {len(held)} tensors"):
        found = first_difference(loaded, golden, held)
    if as_json:
        first = asdict(found) if found is not None else None
        emit({"event": "verified", "tensors": len(held), "first": first})
    elif found is None:
        real = sum(array.dtype.kind == "f" for array in held.values())
        told = f", {real} as real numbers to half a code" if real else ""
        typer.echo(f"{len(held)} of {len(golden.tensors)} tensors were dumped; all of them agree{told}")
    else:
        typer.echo("\n".join(_text(found)))
    if found is not None:
        raise typer.Exit(1)


def _listed(numbers: tuple[float | None, ...]) -> str:
    """Codes as they are, real numbers in six digits."""
    words = ("no number" if n is None else str(n) if isinstance(n, int) else f"{n:.6g}" for n in numbers)
    return " ".join(words)


def _text(f: Finding) -> list[str]:
    from npuflow.program.loop_steps import said

    of = f" of sample {f.sample}" if f.sample else ""
    here, right = (_listed(numbers[f.at : f.at + 1]) for numbers in (f.found, f.expected))
    as_real = " (real numbers, compared to half a code)" if f.real else ""
    lines = [
        f'first difference: "{f.tensor}"{of}, made by {f.layer}: {f.different} of {f.elements} elements',
        f"  element  {list(f.index)}: {here}, expected {right}{as_real}",
    ]
    if f.address is not None:
        lines.append(f"  address  {f.address:#x} in {f.memory}")
    if f.tile is not None:
        box = ", ".join(f"{a}:{b}" for a, b in f.tile.box)
        lines.append(
            f"  tile     {f.tile.number} of {f.tile.count}: [{box}], "
            f"command {f.tile.command} of core {f.tile.core}"
        )
    lines += [f"  loop     {said(f.loops)}"] if f.loops else []
    lines.append(f"  expected {_listed(f.expected)}")
    lines.append(f"  found    {_listed(f.found)}")
    lines.append(f"  cause    {f.cause.kind}: {f.cause.text}")
    return lines
