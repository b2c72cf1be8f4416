"""Figures of builds over commits, from the records that a pipeline keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from npuflow.base.errors import UsageError
from npuflow.cli._engine import JsonOption


def history(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Files of `build --record`, folders of them, report.json files, or output folders.",
            show_default=False,
        ),
    ],
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw them over the commits: .html, .svg or .png."),
    ] = None,
    build: Annotated[
        list[str] | None,
        typer.Option("--build", metavar="NAME", help="Only this build of each file. May be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """A row for every build of every record, the oldest commit first: score, cycles, bytes, size, energy."""
    rows = _rows(files, build or [])
    if plot is not None:
        from npuflow.report.figures.builds import history as drawn
        from npuflow.report.figures.export import write
        from npuflow.report.gate.compare import TITLES

        write(plot, drawn(rows, TITLES))
        typer.echo(f"wrote {plot}", err=True)
    if as_json:
        from npuflow.cli._events import emit

        for row in rows:
            emit({"event": "history", **row})
        return
    typer.echo("\n".join(_table(rows)))


def _rows(files: list[Path], wanted: list[str]) -> list[dict[str, Any]]:
    from npuflow.cli._recorded import read, records_in

    records = [one for path in files for one in records_in(path) or [read(path)]]
    if all(one.made for one in records):
        records.sort(key=lambda one: one.made)
    rows = [
        {"commit": one.commit[:10] or one.path.stem, "made": one.made, "build": name,
         **found.figures.as_dict()}
        for one in records for name, found in one.builds.items() if not wanted or name in wanted
    ]
    if not rows:
        names = sorted({name for one in records for name in one.builds})
        raise UsageError(
            f'no record has a build called {" or ".join(wanted)}', because=f"they have {', '.join(names)}",
            code="NF-USAGE-355",
        )
    return rows


def _table(rows: list[dict[str, Any]]) -> list[str]:
    from npuflow.cli._columns import columns
    from npuflow.cli._gate import number
    from npuflow.report.gate.compare import TITLES

    names = [name for name in TITLES if any(row[name] is not None for row in rows)]
    cells = [["commit", "made", "build", *(TITLES[name] for name in names)]]
    for row in rows:
        figures = ["-" if row[name] is None else number(row[name]) for name in names]
        cells.append([row["commit"], row["made"][:10] or "-", row["build"], *figures])
    return list(columns(cells, range(3, len(cells[0]))))
