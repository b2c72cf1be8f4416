"""Cycles, utilisation and bytes of a program, per layer and per command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from npuflow.engine.profile import Profile

COLUMNS = (
    "name", "op", "cycles", "utilisation", "closed", "tensor", "vector", "load", "store", "load_bytes", "store_bytes",
    "limit", "stall",
)  # fmt: skip


def profile(
    program: Annotated[Path, typer.Argument(metavar="PROGRAM", help="A .npu file.", show_default=False)],
    commands: Annotated[bool, typer.Option("--commands", help="One row per command instead of per layer.")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="The map of external memory instead.")] = False,
    trace: Annotated[Path | None, typer.Option("--trace", help="Write a Chrome/Perfetto trace to this file.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the rows to this CSV file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line on standard output.")] = False,
) -> None:
    """Where a program's cycles and bytes go, by the simulator's clock, beside the closed form and the lower bounds."""
    import json

    from npuflow.engine.profile import profile as measure
    from npuflow.engine.program.container import load_program

    found = measure(load_program(program))
    rows = list(found.commands()) if commands else found.memory() if memory else found.layers()
    if trace is not None:
        trace.write_text(json.dumps(found.trace(), separators=(",", ":")))
    if csv is not None:
        _write_csv(csv, rows)
    if as_json:
        for row in [*rows, {"total": found.totals()}]:
            typer.echo(json.dumps(row))
        return
    if memory:
        _memory_map(found)
    else:
        _table(rows, tuple(rows[0]) if commands and rows else COLUMNS)
    typer.echo(_summary(found.totals()))


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    import csv

    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        text = name in ("name", "op", "limit", "stall", "queue", "opcode", "cause")
        width = 32 if name == "name" else None
        table.add_column(name.replace("_", " "), justify="left" if text else "right", overflow="fold", max_width=width)
    for row in rows:
        table.add_row(*[_cell(name, row.get(name)) for name in columns])
    console = Console()
    if not console.is_terminal:           # a pipe has no width of its own
        console = Console(width=160)
    console.print(table)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "utilisation":
        return f"{value:.1%}"
    return f"{value:,.0f}" if isinstance(value, float) else str(value)


def _memory_map(found: Profile) -> None:
    """Rows of external memory by address; columns are steps; a letter is a value alive there."""
    rows = found.memory()
    if not rows:
        typer.echo("no integer value lives in external memory")
        return
    last, total = max(r["last"] for r in rows) + 1, found.program.meta["data_bytes"]
    lines, width = 24, min(96, last)
    grid = [[" "] * width for _ in range(lines)]
    for n, row in enumerate(rows):
        mark = chr(ord("a") + n % 26)
        top, bottom = row["address"] * lines // total, max(1, -(-(row["address"] + row["size"]) * lines // total))
        for y in range(top, min(lines, bottom)):
            for x in range(row["first"] * width // last, max(row["last"] * width // last, row["first"] * width // last) + 1):
                grid[y][min(x, width - 1)] = mark
    for y, line in enumerate(grid):
        typer.echo(f"{y * total // lines:>12,} |{''.join(line)}|")
    bound = found.program.meta["memory"]["bound"]
    typer.echo(f"{total:>12,} bytes; steps 0..{last - 1} from left to right; at least {bound:,} bytes are alive at once")


def _summary(total: dict[str, Any]) -> str:
    first = (
        f"{total['cycles']:,.0f} cycles ({total['milliseconds']:.2f} ms), {total['bytes'] / 1e6:.2f} MB external, "
        f"{total['macs'] / 1e6:,.1f} MMAC, utilisation {total['utilisation']:.1%}, {total['commands']:,} commands"
    )
    lines = [first]
    if total["closed_cycles"]:
        lines.append(
            f"closed form {total['closed_cycles']:,.0f} cycles ({total['closed_cycles'] / max(1.0, total['cycles']) - 1:+.1%}), "
            f"{total['closed_bytes'] / 1e6:.2f} MB ({total['closed_bytes'] / max(1.0, total['bytes']) - 1:+.1%})"
        )
        lines.append(
            f"lower bounds: {total['bound_cycles']:,.0f} cycles (gap {total['cycles'] / max(1.0, total['bound_cycles']):.2f}), "
            f"{total['bound_bytes'] / 1e6:.2f} MB (gap {total['bytes'] / max(1.0, total['bound_bytes']):.2f}), "
            f"array roofline {total['roofline']:,.0f} cycles"
        )
    return "\n".join(lines)
