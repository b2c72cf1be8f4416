"""Cycles, utilisation and bytes of a program, per layer and per command; two programs beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuflow.base.errors import UsageError
from npuflow.cli._engine import ProgramArgument

if TYPE_CHECKING:
    from npuflow.report.code_places import CodePlaces
    from npuflow.report.profile import Profile

UNITS = ("tensor", "vector", "load", "store", "load_bytes", "store_bytes", "intensity", "limit", "stall")
LAYERS = ("name", "op", "group", "cycles", "utilisation", *UNITS)
GROUPS = ("name", "op", "cycles", "utilisation", "schedule", *UNITS)
LOOPS = ("loop", "iterations", "cycles", "share", "each", "least", "most", "commands", *UNITS[:6])
NETWORKS = ("name", "cycles", "milliseconds", "bytes", "macs", "utilisation", "commands")
COMMANDS = ("command", "core", "queue", "opcode", "layer", "start", "end", "stall", "cause", "bytes", "edge")
WIDTH = 172                               # of a table where there is no terminal
USED = ("energy_uj",)
WORDS = (
    "loop", "iteration", "name", "op", "limit", "stall", "queue", "opcode", "cause", "layer", "what",
    "source",
)


@dataclass(frozen=True)
class ProfileOptions:
    """What of a program is shown, and where it is written."""

    other: Annotated[
        Path | None, typer.Argument(metavar="[OTHER]", help="A second one, to compare with.")
    ] = None
    groups: Annotated[
        bool, typer.Option("--groups", help="One row per group that runs together, with its schedule time.")
    ] = False
    commands: Annotated[
        bool, typer.Option("--commands", help="One row per command instead of per layer.")
    ] = False
    loops: Annotated[
        bool, typer.Option("--loops", help="One row per loop, with its cycles in all and by iteration.")
    ] = False
    steps: Annotated[
        bool, typer.Option("--steps", help="Layers of loops once for every step that the file has.")
    ] = False
    memory: Annotated[bool, typer.Option("--memory", help="The map of memory instead.")] = False
    roofline: Annotated[
        Path | None, typer.Option("--roofline", help="Draw the roofline: .svg, .png or .html.")
    ] = None
    memory_map: Annotated[
        Path | None, typer.Option("--memory-map", help="Draw both memories over time: .svg, .png or .html.")
    ] = None
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write a Chrome/Perfetto trace to this file.")
    ] = None
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the rows to this CSV file.")] = None
    xlsx: Annotated[
        Path | None, typer.Option("--xlsx", help="Write all tables to this XLSX file (needs xlsxwriter).")
    ] = None
    energy: Annotated[
        str | None,
        typer.Option(
            "--energy",
            metavar="TARGET",
            help="The target (a name or a TOML file) whose \\[energy] says what work costs; else that of the "
            "shipped target that the program was built for.",
        ),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line on standard output.")
    ] = False


def profile(program: ProgramArgument, options: ProfileOptions) -> None:
    """What a program's cycles, bytes and energy are spent on, by the simulator's clock, with its
    schedule time and the lower bounds."""
    o = options
    if (found := _only(program, o.csv, o.as_json, o.energy)) is None:
        return
    if o.other is not None:
        if o.groups or o.commands or o.loops or o.memory or o.roofline or o.memory_map or o.trace or o.xlsx:
            raise UsageError(
                "two programs are compared by layer",
                hint="pictures and traces are of one program; --csv, --json", code="NF-USAGE-046",
            )
        _compare(found, _measured(o.other, o.energy), (program, o.other), o.csv, o.as_json)
        return
    rows, columns = _chosen(found, o)
    places = places_beside(program, found)
    rows = rows if o.memory else [{**row, **places.row(row.get("layer") or row["name"])} for row in rows]
    _files(found, rows, o.trace, o.csv, o.xlsx)
    _figures(found, o.roofline, o.memory_map)
    if o.as_json:
        kinds = {"region": o.memory, "command": o.commands, "loop": o.loops, "layer": True}
        total, kind = _totals(found), next(name for name, chosen in kinds.items() if chosen)
        _lines(kind, rows, [{**total, "throughput": total["throughput"].row()}])
        return
    if o.memory:
        from npuflow.report.profile.memory import text_map

        typer.echo(text_map(found))
    else:
        if any("source" in row for row in rows):
            columns = (*columns, "source")
            words = [places.text(row.get("layer") or row["name"]) for row in rows]
            rows = [{**row, "source": said} for row, said in zip(rows, words, strict=True)]
        _table(rows if not o.loops else _indented(rows), columns)
    typer.echo(_summary(found, looped=not o.loops))


def _indented(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Inner loops stand below their outer ones."""
    return [{**row, "loop": f"{'  ' * bool(row['in'])}{row['loop']}"} for row in rows]


def places_beside(program: Path, found: Profile) -> CodePlaces:
    """Places of the layers in the training code, where the build has written them beside the program."""
    from dataclasses import replace

    from npuflow.report.code_places import CodePlaces

    known = CodePlaces.beside(Path(str(program).partition("#")[0]))
    layers = {node["name"]: tuple(node.get("origin", ())) for node in found.program.meta["nodes"]}
    return replace(known, layers=layers)


def _measured(program: Path, energy: str | None) -> Profile:
    from npuflow.cli._energy import table_for
    from npuflow.program.packing.package import load_network
    from npuflow.report.profile import profile as measure

    loaded = load_network(program)
    return measure(loaded, table_for(loaded, energy))


def _only(program: Path, csv: Path | None, as_json: bool, energy: str | None) -> Profile | None:
    """The profile of a file's only program; of several, a row for each is printed."""
    from npuflow.cli._energy import table_for
    from npuflow.program.packing.package import programs_of
    from npuflow.report.profile import profile as measure
    from npuflow.report.profile import tables

    found = {name: measure(one, table_for(one, energy)) for name, one in programs_of(program).items()}
    if "" in found:
        return found[""]
    networks = (*NETWORKS, *(USED if any(one.energy is not None for one in found.values()) else ()))
    rows = [
        {"name": name, **{k: one.totals().get(k) for k in networks[1:]}} for name, one in found.items()
    ]
    if csv is not None:
        _write(csv, tables.csv_text(rows))
    if as_json:
        _lines("network", rows, [])
        return None
    _table(rows, networks)
    typer.echo("layers, commands and memory of one of them: npuflow profile FILE#NAME")
    return None


def _files(
    found: Profile, rows: Sequence[dict[str, Any]], trace: Path | None, csv: Path | None, xlsx: Path | None
) -> None:
    import json

    from npuflow.report.profile import tables, timeline

    if trace is not None:
        _write(trace, json.dumps(timeline.trace(found), separators=(",", ":")))
    if csv is not None:
        _write(csv, tables.csv_text(rows))
    if xlsx is not None:
        tables.save_workbook(xlsx, found)
        typer.echo(f"wrote {xlsx}", err=True)


def _figures(found: Profile, roofline: Path | None, memory_map: Path | None) -> None:
    from npuflow.report.figures import export, program
    from npuflow.report.figures import roofline as roofs
    from npuflow.report.profile import memory
    from npuflow.report.profile import roofline as points

    if roofline is not None:
        export.write(roofline, roofs.roofline(**points.data(found)))
        typer.echo(f"wrote {roofline}", err=True)
    if memory_map is not None:
        drawn = (memory.external_map(found), *memory.local_maps(found))
        parts = [program.memory_map(**data) for data in drawn]
        export.write(memory_map, program.maps(found.program.meta.get("name") or "program", parts))
        typer.echo(f"wrote {memory_map}", err=True)


def _chosen(found: Profile, o: ProfileOptions) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    from npuflow.report.profile import loops
    from npuflow.report.profile import memory as maps

    if o.memory:
        return maps.external(found), ()
    looped = bool(found.program.meta.get("loops"))
    if o.commands and not looped:
        return list(found.commands()), COMMANDS
    if o.commands:
        words = (loops.short(of) for of in loops.steps_of(found))
        rows = ({**row, "iteration": of} for row, of in zip(found.commands(), words, strict=True))
        return list(rows), (*COMMANDS, "iteration")
    more = (*(("host_macs",) if found.host_rows else ()), *(USED if found.energy is not None else ()))
    if o.groups:
        return [*found.layers(), *found.host_rows], (*GROUPS, *more)
    if o.loops:
        return [{**row, "name": row["loop"]} for row in loops.loops(found)], LOOPS
    if looped and not o.steps:
        return [*loops.layers(found), *found.host_rows], ("loop", *LAYERS[:2], *LAYERS[3:], *more)
    return [*found.operators(), *found.host_rows], (*LAYERS, *more)


def _compare(a: Profile, b: Profile, paths: tuple[Path, Path], csv: Path | None, as_json: bool) -> None:
    from npuflow.report.profile import difference, tables

    totals, layers = difference.totals(a, b), difference.layers(a, b)
    if csv is not None:
        _write(csv, tables.csv_text(layers))
    if as_json:
        _lines("layers", layers, totals)
        return
    typer.echo(f"a  {paths[0]}\nb  {paths[1]}\n")
    _table(layers, ("name", "cycles a", "cycles b", "change", "bytes a", "bytes b"))
    typer.echo("")
    _table(totals, ("what", "a", "b", "change", "ratio"))


def _lines(kind: str, rows: Sequence[dict[str, Any]], totals: Sequence[dict[str, Any]]) -> None:
    from npuflow.cli._events import emit

    for row in rows:
        emit({"event": kind, **row})
    for row in totals:
        emit({"event": "total", "total": row})


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content)
    except OSError as error:
        raise UsageError(f'cannot write "{path}": {error.strerror}', code="NF-USAGE-025") from error
    typer.echo(f"wrote {path}", err=True)         # the figures alone are on standard output


def _table(rows: Sequence[dict[str, Any]], columns: tuple[str, ...]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        text = name in WORDS and not (name == "stall" and rows and isinstance(rows[0].get(name), float))
        width = 32 if name in ("name", "layer") else None
        table.add_column(
            name.replace("_", " "), justify="left" if text else "right", overflow="fold", max_width=width
        )
    for row in rows:
        table.add_row(*[escape(_cell(name, row.get(name), row.get("what", ""))) for name in columns])
    console = Console()
    if not console.is_terminal:           # a pipe has no width of its own
        console = Console(width=WIDTH + 32 * ("source" in columns))
    console.print(table)


def _cell(name: str, value: Any, what: str = "") -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if ("utilisation" in (name, what) or name == "share") and name != "ratio" and isinstance(value, float):
        return f"{value:.1%}"
    if name == "ratio" or "milliseconds" in (name, what):
        return f"{value:.3f}"
    if name == "intensity":
        return f"{value:.1f}"
    if "energy_uj" in (name, what):
        return f"{value:.4g}"
    return f"{value:,.0f}" if isinstance(value, float) else f"{value:,}"


def _totals(found: Profile) -> dict[str, Any]:
    from npuflow.report.profile.cores import cores
    from npuflow.report.throughput import throughput

    return {**found.totals(), "cores": cores(found), "throughput": throughput(found.program)}


def _summary(found: Profile, looped: bool = True) -> str:
    """`looped`: with the loops, where no table has them."""
    from npuflow.report.profile import cores, loops
    from npuflow.report.profile.energy import text as energy_text
    from npuflow.report.profile.schedule import compare, worst_groups

    total = _totals(found)
    shared = f" and {total['shared_bytes'] / 1e6:.2f} MB shared" if total["shared_bytes"] else ""
    first = (
        f"{total['cycles']:,.0f} cycles ({total['milliseconds']:.2f} ms), {total['bytes'] / 1e6:.2f} MB "
        f"external{shared}, "
        f"{total['macs'] / 1e6:,.1f} MMAC, utilisation {total['utilisation']:.1%}, {total['commands']:,} "
        "commands"
    )
    lines = [
        first,
        f"NPU {total['npu_cycles']:,.0f} cycles; host {found.host.described(found.program.target)}",
    ]
    parts = sorted(total["path"].items(), key=lambda p: -p[1])
    lines.append(
        "critical path: "
        + ", ".join(f"{name} {cycles / max(1.0, total['cycles']):.1%}" for name, cycles in parts)
    )
    lines += loops.text(loops.loops(found)) if looped else []
    terms = compare(found)
    if terms:
        lines.append(
            f"schedule time {terms[0].schedule:,.0f} cycles ({terms[0].error:+.1%}), "
            f"{total['schedule_bytes'] / 1e6:.2f} MB "
            f"({total['schedule_bytes'] / max(1.0, total['bytes']) - 1:+.1%}); by term: "
            + ", ".join(f"{t.name} {t.schedule:,.0f} / {t.clock:,.0f} ({t.error:+.1%})" for t in terms[1:])
        )
        worst = worst_groups(found, 1)
        lines += [f"farthest apart: {worst[0]}"] if worst else []
        lines.append(
            f"lower bounds: {total['bound_cycles']:,.0f} cycles of the NPU "
            f"(gap {total['npu_cycles'] / max(1.0, total['bound_cycles']):.2f}), "
            f"{total['bound_bytes'] / 1e6:.2f} MB (gap "
            f"{total['bytes'] / max(1.0, total['bound_bytes']):.2f}), "
            f"array roofline {total['roofline']:,.0f} cycles"
        )
    lines += [cores.text(found)] if total["cores"] else []
    lines += [energy_text(total, found.energy)] if found.energy is not None else []
    lines.append(total["throughput"].text())
    return "\n".join(lines)
