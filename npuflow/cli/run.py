"""Run a program, an ONNX, QDQ ONNX or TFLite model on arrays, pictures, folders or standard input."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuflow.cli._engine import KeyOption

if TYPE_CHECKING:
    from npuflow.runner.backend import Exact


class Kind(StrEnum):
    """What computes a program."""

    EXECUTOR = "executor"
    SIMULATOR = "simulator"


ComputedBy = Annotated[
    Kind | None,
    typer.Option(
        "--exact", help="What computes a program: whole tensors, or its commands.", show_default=False
    ),
]


class NotANumber(StrEnum):
    """What is done about NaN in inputs."""

    WARN = "warn"
    REFUSE = "refuse"
    ALLOW = "allow"


@dataclass(frozen=True)
class RunOptions:
    """How a program runs, and what is written."""

    out: Annotated[Path, typer.Option("--out", "-o", help="The npz file to write.")] = Path("outputs.npz")
    dump_all: Annotated[bool, typer.Option("--dump-all", help="Also every intermediate tensor.")] = False
    batch: Annotated[int, typer.Option("--batch", min=1, max=64, help="Samples simulated together.")] = 8
    exact: ComputedBy = None
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="OUTPUT=INPUT of an .onnx model that follow from sample to sample."),
    ] = None
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help="Refuse the program if it was not compiled for this target."),
    ] = None
    nan: Annotated[
        NotANumber, typer.Option("--nan", help="NaN in inputs, which integers have not: say so, or refuse.")
    ] = NotANumber.WARN
    keys: KeyOption = None
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False


def run(
    program: Annotated[
        Path,
        typer.Argument(
            metavar="PROGRAM", help="A .npu program, or an .onnx or .tflite model.", show_default=False
        ),
    ],
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...",
            help="An npz of named arrays, or one npy or picture per input. Several samples: a folder, a "
            "pattern (frames/%04d.png, 'in/*.npy') or, with one input, several files. -: standard input.",
            show_default=False,
        ),
    ],
    options: RunOptions,
) -> None:
    """Run a program, or a model on onnxruntime. A program is computed on whole tensors from the graph that it
    keeps, or by its commands on the simulator: the bits are the same. Inputs with a leading axis of samples
    run one by one. Several files are several samples, in the order of the numbers in their names."""
    from npuflow.cli._events import emit
    from npuflow.cli._run_model import noted, open_model, save_outputs
    from npuflow.cli._run_samples import run_samples
    from npuflow.runner.opening import trusted

    batch, out = options.batch, options.out
    if options.target is not None:
        _require(program, options.target)
    source = trusted(program, options.keys) if options.keys else program
    model = open_model(
        source, batch, options.dump_all, state=_pairs(options.state or ()), exact=_kind(options.exact),
        nan=options.nan.value,
    )
    for note in model.notes:
        noted(note)
    outputs, stacked = run_samples(model, inputs, model.preparation, batch, note=noted)
    written = save_outputs(out, outputs, stacked)
    if options.as_json:
        emit({"event": "run", "out": str(out), "samples": len(outputs), "tensors": written})
        return
    typer.echo(f"{len(outputs)} sample{_s(outputs)}, {len(written)} tensor{_s(written)} -> {out}")
    for name, shape in list(written.items())[:20]:
        typer.echo(f"  {name}  {'x'.join(map(str, shape))}")


def _s(items: Sized) -> str:
    return "" if len(items) == 1 else "s"


def _require(program: Path, target: str) -> None:
    from npuflow.cli import targets
    from npuflow.program.container import require_target
    from npuflow.program.packing.package import programs_of

    wanted = targets.target_of(targets.path_of(target))
    require_target(next(iter(programs_of(program).values())), wanted, target)


def _kind(exact: Kind | None) -> Exact | None:
    return None if exact is None else "executor" if exact is Kind.EXECUTOR else "simulator"


def _pairs(stated: Iterable[str]) -> tuple[tuple[str, str], ...]:
    from npuflow.base.errors import UsageError

    for text in stated:
        if not all(text.partition("=")):
            raise UsageError(
                f'--state "{text}" is not OUTPUT=INPUT', hint="--state stateN=state", code="NF-USAGE-081",
            )
    return tuple((output, given) for output, _, given in (text.partition("=") for text in stated))
