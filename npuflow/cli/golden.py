"""Golden tensors of a program: what a board's dumps are held against."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuflow.cli._engine import InputsArgument, ProgramArgument
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
) -> None:
    """Every integer tensor of a run on the simulator, with digests, layers, addresses and the name of the
    file that a board's dump of it has."""
    from npuflow.base.errors import UsageError
    from npuflow.cli._inputs import load_inputs
    from npuflow.cli._run_model import open_model
    from npuflow.engine.runner import ProgramRunner
    from npuflow.engine.verify.golden import golden_of, save

    model = open_model(program, exact="simulator")
    samples, _ = load_inputs(inputs, model.ports, model.preparation)
    runner = ProgramRunner(program)
    known = [*runner.program.meta["values"], *runner.program.taps.values]
    missing = [n for n in tensors or () if n not in known]
    if missing:
        raise UsageError(
            f'the program has no integer tensor "{missing[0]}"',
            hint="npuflow profile lists its layers",
            code="NF-USAGE-080",
        )
    with Working(f"simulating {len(samples)} samples"):
        found = golden_of(runner.program, runner.run_many(samples, dump=tensors or True))
        save(found, runner.program, output)
    size = sum(a.nbytes for a in found.tensors.values())
    typer.echo(f"wrote {output}: {len(found.tensors)} tensors of {found.samples} samples, {size} bytes")
