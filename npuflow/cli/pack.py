"""Several programs in one file that share external memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuflow.cli._engine import JsonOption


def pack(
    programs: Annotated[
        list[Path], typer.Argument(metavar="PROGRAM...", help="The .npu files.", show_default=False)
    ],
    file: Annotated[Path, typer.Option("--to", "-o", metavar="FILE", help="The .npu file to write.")],
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="NAME", help="Of a network, in order; else that of its file."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write one file of several programs for the same target: constants side by side in external memory,
    equal ones once, and activations of all in the same place, as one network runs at a time.

    `npuflow run FILE#NAME` runs one of them, and `npuflow.Runner("FILE#NAME")`."""
    from npuflow.base.errors import UsageError
    from npuflow.cli._events import written
    from npuflow.cli._files import writing
    from npuflow.program.container import load_program
    from npuflow.program.packing.package import packed

    chosen = names or [path.stem for path in programs]
    if len(set(chosen)) < len(programs) or len(chosen) > len(programs):
        raise UsageError(
            f"{len(programs)} programs, with the names {', '.join(chosen)}",
            because="each needs one of its own",
            hint="--name NAME for each program, in their order", code="NF-USAGE-163",
        )
    loaded = {name: load_program(path) for name, path in zip(chosen, programs, strict=True)}
    package = packed(loaded)
    with writing(file):
        package.save(file)
    apart = sum(len(p.const) for p in loaded.values()), sum(p.meta["data_bytes"] for p in loaded.values())
    if as_json:
        written(
            file, "program", networks=chosen, const_bytes=len(package.const), data_bytes=package.data_bytes,
            const_bytes_apart=apart[0], data_bytes_apart=apart[1],
        )
        return
    typer.echo(
        f"{file}: {', '.join(chosen)}; constants {len(package.const)} bytes (apart {apart[0]}), activations "
        f"{package.data_bytes} (apart {apart[1]})"
    )
