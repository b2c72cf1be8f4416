"""Inputs and outputs as the bytes of the NPU's memory, for hosts without a runtime and test benches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from npuflow.base.errors import UsageError
from npuflow.cli._engine import InputsArgument, JsonOption, ProgramArgument
from npuflow.cli._events import written
from npuflow.cli._files import write_file

if TYPE_CHECKING:
    from npuflow.runner.raw import DataSlot

app = typer.Typer(no_args_is_help=True, add_completion=False)

LastOption = Annotated[bool, typer.Option("--channels-last", help="Arrays have their channels last.")]


@app.command()
def slots(program: ProgramArgument, as_json: JsonOption = True) -> None:
    """The place of every input and output: address, bytes, type and scale, one JSON object a line (with and
    without --json)."""
    from npuflow.cli._events import emit
    from npuflow.program.container import load_program
    from npuflow.runner import raw

    loaded = load_program(program)
    for way, found in (("input", raw.inputs(loaded)), ("output", raw.outputs(loaded))):
        for slot in found:
            emit({"event": "slot", "way": way, **slot.to_json()})


@app.command()
def pack(
    program: ProgramArgument,
    inputs: InputsArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("inputs.bin"),
    channels_last: LastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Scale inputs to codes, lay them out and pad them: all slots in order, sample by sample."""
    import numpy as np

    from npuflow.cli._inputs import Port
    from npuflow.cli._run_samples import every_sample
    from npuflow.program.container import load_program
    from npuflow.runner import raw

    loaded = load_program(program)
    places, preparation = raw.inputs(loaded), loaded.meta.get("preparation")
    entries = {e["name"]: e for e in loaded.meta["inputs"]}
    ports = []
    for slot in places:
        shape = (
            (slot.shape[0], *slot.shape[2:], slot.shape[1])
            if channels_last and len(slot.shape) >= 3
            else slot.shape
        )
        ports.append(
            Port(slot.name, "float32" if slot.quant else entries[slot.name]["dtype"], shape, codes=True)
        )
    samples = every_sample(
        inputs, ports, preparation, lambda text: typer.echo(f"note: {text}", err=True), not channels_last
    )
    body = b"".join(
        raw.pack(loaded, {k: np.asarray(v) for k, v in sample.items()}, _layout(channels_last))
        for sample in samples
    )
    write_file(out, body)
    if as_json:
        written(out, "bytes", samples=len(samples), bytes=len(body))
        return
    typer.echo(f"{len(samples)} sample{'s' if len(samples) != 1 else ''}, {len(body):,} bytes -> {out}")


@app.command()
def unpack(
    program: ProgramArgument,
    packed: Annotated[
        Path, typer.Argument(metavar="BYTES", help="The bytes of all output slots.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The npz file to write.")] = Path("outputs.npz"),
    codes: Annotated[bool, typer.Option("--codes", help="Integer codes instead of real numbers.")] = False,
    channels_last: LastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Convert output bytes to arrays."""
    from npuflow.cli._run_model import save_outputs
    from npuflow.program.container import load_program
    from npuflow.runner import raw

    loaded = load_program(program)
    parts = _samples(packed, raw.outputs(loaded))
    found = [raw.unpack(loaded, part, codes=codes, layout=_layout(channels_last)) for part in parts]
    shapes = save_outputs(out, found, len(found) > 1)
    if as_json:
        written(out, "npz", tensors=shapes)
        return
    for name, shape in shapes.items():
        typer.echo(f"  {name}  {'x'.join(map(str, shape))}")


@app.command()
def run(
    program: ProgramArgument,
    packed: Annotated[
        Path, typer.Argument(metavar="BYTES", help="The bytes of all input slots.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("outputs.bin"),
    as_json: JsonOption = False,
) -> None:
    """The NPU's part alone, on the simulator: bytes in, bytes out."""
    from npuflow.program.container import load_program
    from npuflow.runner import raw

    loaded = load_program(program)
    body = b"".join(raw.run(loaded, part) for part in _samples(packed, raw.inputs(loaded)))
    write_file(out, body)
    if as_json:
        written(out, "bytes", bytes=len(body))
        return
    typer.echo(f"{len(body):,} bytes -> {out}")


def _layout(channels_last: bool) -> Literal["as_is", "channels_last"]:
    return "channels_last" if channels_last else "as_is"


def _samples(path: Path, slots: Sequence[DataSlot]) -> list[bytes]:
    """The file cut into samples, each the bytes of all slots."""
    each = sum(s.padded for s in slots)
    try:
        body = path.read_bytes()
    except OSError as error:
        raise UsageError(f'cannot read "{path}": {error.strerror}', code="NF-USAGE-048") from error
    if not body or len(body) % each:
        raise UsageError(
            f'"{path}" has {len(body):,} bytes, a sample takes {each:,}',
            hint="npuflow raw slots PROGRAM", code="NF-USAGE-049",
        )
    return [body[i : i + each] for i in range(0, len(body), each)]
