"""Products for other tools: QDQ ONNX, calibration tables, C, its runtime, TFLite, TOSA, EPContext models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuflow.cli._engine import CacheOption, JsonOption, RecipeArg, SetOption
from npuflow.cli._events import emit, written
from npuflow.cli._files import write_file

if TYPE_CHECKING:
    from npuflow.flow.artifact import Reader

app = typer.Typer(no_args_is_help=True)

OutOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write it.", show_default=False)
]


@app.command()
def qdq(
    recipe: RecipeArg, output: OutOption, sets: SetOption = None, cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """The quantised network as QDQ ONNX, for any ONNX runtime."""
    from npuflow.stages.qdq import FILE

    reader = _made(recipe, "qdq", sets or [], cache)
    write_file(output, reader.bytes(FILE))
    _report("qdq", output, [f"wrote {output}", *(f"note: {note}" for note in reader.json("notes"))], as_json)


@app.command()
def thresholds(
    recipe: RecipeArg,
    output: OutOption,
    chosen: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="toml, json, or another tool's; `npuflow export formats` lists them.",
        ),
    ] = None,
    codes: Annotated[bool, typer.Option("--codes", help="With scales and zero points (toml, json).")] = False,
    weights: Annotated[
        bool, typer.Option("--weights", help="With the weights' scales (toml, json, aimet).")
    ] = False,
    sets: SetOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """The range of every tensor, as a table to read, to edit and put into a recipe ([ranges]
    file), or for another tool."""
    from npuflow.cli._export_table import write

    reported = write(recipe, output, chosen, codes=codes, weights=weights, sets=sets or [], cache=cache)
    _report("thresholds", output, reported, as_json)


@app.command()
def formats(as_json: JsonOption = False) -> None:
    """The formats of calibration tables, and what each cannot express."""
    from npuflow.exchange import EXCHANGE

    for name in EXCHANGE.names():
        if as_json:
            one = EXCHANGE[name]
            emit({"event": "format", "name": name, "suffix": one.suffix, "omits": one.omits})
            continue
        typer.echo(f"{name:<20} {EXCHANGE[name].suffix:<22} {EXCHANGE[name].omits or 'says everything'}")


@app.command("c")
def c_program(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="A recipe, or a .npu whose build is in the cache.", show_default=False
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="Where to write the files.", show_default=False),
    ],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Of files and functions; else the source's.")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", help="Samples of the test vector.", min=1)] = 2,
    large: Annotated[
        float, typer.Option("--large", metavar="MB", help="Constants above this go to weights.bin.", min=0)
    ] = 4.0,
    sets: SetOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """The quantised network as self-contained C99: source, header, Makefile, test vector. Integers in and
    out; the same codes as the program's."""
    from npuflow.cli._export_c import write

    reported = write(source, output, name=name, samples=samples, large=large, sets=sets or [], cache=cache)
    _report("c", output, reported, as_json)


@app.command()
def tflite(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="A recipe, or a .npu whose build is in the cache.", show_default=False
        ),
    ],
    output: OutOption,
    check: Annotated[
        int | None,
        typer.Option(
            "--check",
            metavar="N",
            min=0,
            show_default=False,
            help="Compare it with the program in LiteRT on so many random samples; 2 where LiteRT is "
            "installed, 0 for none.",
        ),
    ] = None,
    unroll: Annotated[
        bool, typer.Option("--unroll", help="Loops step after step, for compilers without WHILE.")
    ] = False,
    sets: SetOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """The quantised network as TFLite: int8 per channel or int16x8, integers in and out, for LiteRT and for
    compilers that read TFLite (Vela)."""
    from npuflow.cli._export_tflite import write

    _report("tflite", output, write(source, output, check, sets or [], cache, unroll), as_json)


@app.command()
def tosa(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="A recipe, or a .npu whose build is in the cache.", show_default=False
        ),
    ],
    output: OutOption,
    sets: SetOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """The quantised network as TOSA, integer profile: the program's integers bit for bit, or an error that
    lists the layers without an exact form."""
    from npuflow.cli._exported import graph_of
    from npuflow.cli._slow import Working
    from npuflow.export_tosa.builder import to_tosa
    from npuflow.export_tosa.file import written
    from npuflow.ir.unroll import written_out

    graph, numerics = graph_of(source, sets or [], cache, "tosa")
    with Working("writing TOSA"):
        model = to_tosa(written_out(graph), numerics)
        body = written(model.network)
    write_file(output, body)
    counts = ", ".join(f"{name} {count}" for name, count in sorted(model.operators.items()))
    reported = [f"wrote {output}: {len(body)} bytes; {counts}"]
    for end in (*model.inputs, *model.outputs):
        side = "input" if end in model.inputs else "output"
        shape = "x".join(map(str, end.value.shape))
        codes = f"the program's codes less {end.less}" if end.less else "the program's codes"
        reported.append(f"{side} {end.name}: {shape}, {end.value.dtype}, tensor {end.value.name}, {codes}")
    _report("tosa", output, reported, as_json)


@app.command()
def epcontext(
    program: Annotated[
        Path, typer.Argument(metavar="PROGRAM", help="A .npu, or FILE.npu#NETWORK.", show_default=False)
    ],
    output: OutOption,
    external: Annotated[
        bool,
        typer.Option("--external", help="The context in a file beside the model, FILE_context.npu."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """The program as an ONNX model with EPContext nodes of ONNX Runtime; parts of the host are plain
    nodes. npuflow.ort runs it."""
    from npuflow.base.paths import absent
    from npuflow.base.wording import counted
    from npuflow.program.packing.package import load_network
    from npuflow.runner.context_model import context_model

    if not program.is_file() and ".npu#" not in program.name:
        raise absent(program)
    beside = output.with_name(f"{output.stem}_context.npu")
    made = context_model(load_network(program), beside.name if external else "")
    if external:
        write_file(beside, made.context)
    write_file(output, made.model)
    nodes = f"{counted(made.parts, 'EPContext node')}, {counted(made.hosted, 'node')} of the host"
    where = f"in {beside}" if external else "in it"
    reported = f"wrote {output}: {nodes}; context of {len(made.context)} bytes {where}"
    _report("epcontext", output, [reported], as_json)


@app.command()
def explorer(
    recipe: RecipeArg,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="Where to write the files.", show_default=False),
    ],
    sets: SetOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """The last build for Google's Model Explorer: the network as a graph, and cycles, bytes, energy and SQNR
    of its layers as node data."""
    from npuflow.cli._explorer import write

    files = write(recipe, output, sets or [], cache)
    _report("explorer", output, [f"wrote {output}: {', '.join(path.name for path in files)}"], as_json)


def _report(kind: str, output: Path, reported: Sequence[str], as_json: bool) -> None:
    """What was written, in words or as a line of JSON."""
    if not as_json:
        typer.echo("\n".join(reported))
        return
    notes = [line.removeprefix("note: ") for line in reported[1:]]
    size = output.stat().st_size if output.is_file() else None
    written(output, kind, notes, **({} if size is None else {"bytes": size}))


@app.command("runtime")
def c_runtime(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="Where to write the files.", show_default=False),
    ],
    as_json: JsonOption = False,
) -> None:
    """The C runtime, which loads and runs any .npu file: C99 sources, a header for C and C++, Makefile,
    CMakeLists.txt, an example, a fuzzer."""
    from npuflow.base.code import package_file
    from npuflow.cli._files import writing

    root = package_file("../runtime/Makefile").parent
    parts = ("*/*.[ch]", "Makefile", "CMakeLists.txt", "README.md")
    found = [path for part in parts for path in sorted(root.glob(part))]
    for path in found:
        to = output / path.relative_to(root)
        with writing(to):
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(path.read_bytes())
    build = f"build it: make -C {output}; then {output / 'build' / 'run'} FILE.npu"
    _report("runtime", output, [f"wrote {output}: {len(found)} files", build], as_json)


def _made(path: Path, stage: str, sets: list[str], cache: Path | None) -> Reader:
    """The artifact of a stage, built if it must be."""
    from npuflow.cli._export_table import made

    return made(path, stage, sets, cache)[0]
