"""Golden tensors of a program: what a board's dumps are held against."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuflow.base.wording import counted
from npuflow.cli._engine import InputsArgument, JsonOption, ProgramArgument
from npuflow.cli._slow import Working


def golden(
    program: ProgramArgument,
    inputs: InputsArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where to write them.", show_default=False)
    ],
    tensors: Annotated[
        list[str] | None,
        typer.Option("--tensor", metavar="NAME", help="Only this tensor; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Every integer tensor of a run on the simulator, with digests, layers, addresses and the name of the
    file that a board's dump of it has."""
    from npuflow.base.errors import UsageError
    from npuflow.checks.board.golden import golden_of, save
    from npuflow.cli._run_model import open_model
    from npuflow.cli._run_samples import every_sample
    from npuflow.runner.simulated import ProgramRunner

    model = open_model(program, exact="simulator")
    samples = every_sample(
        inputs, model.ports, model.preparation, lambda text: typer.echo(f"note: {text}", err=True)
    )
    runner = ProgramRunner(program)
    known = [*runner.program.meta["values"], *runner.program.taps.values]
    missing = [n for n in tensors or () if n not in known]
    if missing:
        raise UsageError(
            f'the program has no integer tensor "{missing[0]}"',
            hint="npuflow profile lists its layers",
            code="NF-USAGE-080",
        )
    count = f"{len(samples)} sample{'' if len(samples) == 1 else 's'}"
    with Working(f"simulating {count}"):
        found = golden_of(runner.program, runner.run_many(samples, dump=tensors or True))
        save(found, runner.program, output)
    size = sum(a.nbytes for a in found.tensors.values())
    if as_json:
        from npuflow.cli._events import written

        written(output, "golden", tensors=len(found.tensors), samples=len(samples), bytes=size)
        return
    typer.echo(f"wrote {output}: {counted(len(found.tensors), 'tensor')} of {count}, {size} bytes")
