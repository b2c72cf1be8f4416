"""Look at npz and npy files of tensors: list, dump, stats, compare, extract, raw bytes, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuflow.cli._engine import JsonOption
from npuflow.cli._events import emit
from npuflow.cli._events import written as told

app = typer.Typer(no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", help="An npz or npy file.", show_default=False)]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME...]", help='Tensors by name or pattern ("*conv*"); all without one.'),
]
Name = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="A tensor; needed where there are several.")
]


@app.command("list")
def list_(file: File, names: Names = None, as_json: JsonOption = False) -> None:
    """Names, types and shapes."""
    from npuflow.cli._npz import chosen, facts, printed

    rows = [facts(name, array) for name, array in chosen(file, names or []).items()]
    printed(rows, "tensor" if as_json else "")


@app.command()
def stats(file: File, names: Names = None, as_json: JsonOption = False) -> None:
    """Extrema, mean, deviation, zeros, and values that are not finite."""
    from npuflow.cli._npz import chosen, printed, statistics

    rows = [statistics(name, array) for name, array in chosen(file, names or []).items()]
    printed(rows, "tensor" if as_json else "")


@app.command()
def dump(
    file: File,
    names: Names = None,
    most: Annotated[
        int, typer.Option("--count", "-n", min=0, help="Values printed of each tensor; 0: all.")
    ] = 64,
    as_json: JsonOption = False,
) -> None:
    """The values of tensors."""
    from npuflow.cli._npz import chosen, dumped, facts

    for name, array in chosen(file, names or []).items():
        if as_json:
            values = array.reshape(-1)[: most or None].tolist()
            emit({"event": "tensor", **facts(name, array), "values": values})
        else:
            typer.echo(dumped(name, array, most))


@app.command()
def compare(
    first: File,
    second: Annotated[Path, typer.Argument(metavar="OTHER", help="Compared with FILE.", show_default=False)],
    names: Names = None,
    cosine: Annotated[
        float | None, typer.Option("--cosine", help="The least cosine that is accepted.")
    ] = None,
    sqnr: Annotated[
        float | None, typer.Option("--sqnr", help="The least SQNR in dB that is accepted.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Differences up to this count as equal.")
    ] = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Tensors that both files have: elements that differ, largest difference, cosine, SQNR. Exit code 1
    if one is not accepted: by --cosine and --sqnr, or, without them, if any element differs."""
    from npuflow.cli._npz import compared, printed

    rows, accepted = compared(first, second, names or [], tolerance, cosine, sqnr)
    if as_json:
        printed([{"name": row["tensor"], **row} for row in rows], "comparison")
    else:
        printed(rows, "")
        typer.echo(f"{accepted} of {len(rows)} tensors accepted")
    if accepted < len(rows):
        raise typer.Exit(1)


@app.command()
def extract(
    file: File,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Tensors by name or pattern.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="An npz, or an npy of one tensor.", show_default=False)
    ],
    as_json: JsonOption = False,
) -> None:
    """Copy some tensors into a file of their own."""
    from npuflow.cli._npz import chosen, saved

    arrays = chosen(file, names)
    saved(out, arrays)
    if as_json:
        told(out, "npz", tensors={name: list(array.shape) for name, array in arrays.items()})
        return
    typer.echo(f"{len(arrays)} tensor{'s' if len(arrays) != 1 else ''} -> {out}")


@app.command("to-raw")
def to_raw(
    file: File,
    name: Name = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("tensor.bin"),
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", help="Convert to int8, float16, ...; values that do not fit are an error."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """The bytes of a tensor, little-endian, in row-major order."""
    from npuflow.cli._npz import one, raw, written

    array = raw(*one(file, name), dtype)
    written(out, array.tobytes())
    if as_json:
        told(out, "bytes", bytes=array.nbytes, shape=list(array.shape), type=array.dtype.name)
        return
    typer.echo(f"{array.nbytes} bytes, {'x'.join(map(str, array.shape))} {array.dtype.name} -> {out}")


@app.command("to-image")
def to_image(
    file: File,
    name: Name = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .png file.")] = Path("tensor.png"),
    sample: Annotated[int, typer.Option("--sample", min=0, help="Which one along the first axis.")] = 0,
    low: Annotated[float | None, typer.Option("--low", help="The value that is black.")] = None,
    high: Annotated[float | None, typer.Option("--high", help="The value that is white.")] = None,
    as_json: JsonOption = False,
) -> None:
    """A tensor as a picture: 1 or 3 channels as they are, more of them side by side. Bytes are pixels; other
    values are scaled from --low and --high, by default their own extrema."""
    from npuflow.cli._npz import one, written
    from npuflow.cli._npz_image import picture, png

    pixels = picture(*one(file, name), sample, low, high)
    written(out, png(pixels))
    if as_json:
        told(out, "picture", width=pixels.shape[1], height=pixels.shape[0])
        return
    typer.echo(f"{pixels.shape[1]}x{pixels.shape[0]} pixels -> {out}")
