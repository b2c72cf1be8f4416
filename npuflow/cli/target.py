"""Targets made from measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuflow.base.errors import UsageError, suggestion
from npuflow.base.wording import counted
from npuflow.cli._files import write_file

if TYPE_CHECKING:
    from npuflow.hw.target import Target
    from npuflow.report.fitting.fit import Fit
    from npuflow.report.fitting.measured import Floats, Subject

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _verbs() -> None:
    """Targets made from measurements."""


@app.command()
def fit(
    measured: Annotated[
        Path,
        typer.Argument(
            metavar="MEASURED",
            help="A CSV file: layer, one of s, ms, us, ns, cycles, and program where there are several.",
            show_default=False,
        ),
    ],
    programs: Annotated[
        list[Path], typer.Argument(metavar="PROGRAM...", help="The programs that ran.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the fitted target to this TOML file.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="KEY", help="Fit this constant; may be repeated. Else all of them."),
    ] = None,
    held_out: Annotated[
        float,
        typer.Option("--held-out", min=0.0, max=0.5, help="Share of the layers that judge and do not fit."),
    ] = 0.25,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Fit set-up costs, bandwidths and rates of the programs' target to the layer times of a board. Prints
    every constant and the mean error of the layers before and after."""
    import json
    from dataclasses import asdict

    from npuflow.report.fitting.fit import CONSTANTS
    from npuflow.report.fitting.fit import fit as fitted

    for name in only or ():
        if name not in CONSTANTS:
            raise UsageError(
                f'"{name}" cannot be fitted', hint=suggestion(name, list(CONSTANTS)), code="NF-RUN-036"
            )
    subjects, times, target = _given(measured, programs)
    found = fitted(subjects, times, target, only or list(CONSTANTS), held_out)
    if out is not None:
        write_file(out, "\n".join(_document(found.target, measured.name)))
    if as_json:
        rows = [asdict(row) for row in found.rows]
        constants = {name: list(pair) for name, pair in found.constants.items()}
        typer.echo(json.dumps({"constants": constants, "undetermined": found.undetermined, "layers": rows}))
        return
    _show(found)
    if out is not None:
        typer.echo(f"wrote {out}")


def _given(measured: Path, programs: list[Path]) -> tuple[list[Subject], list[Floats], Target]:
    from npuflow.program.container import load_program, require_target
    from npuflow.report.fitting import measured as files

    loaded = [load_program(path) for path in programs]
    for path, one in zip(programs[1:], loaded[1:], strict=True):
        require_target(one, loaded[0].target, f"the target of {programs[0].name}, as {path.name} must be")
    subjects = [files.subject(path.stem, one) for path, one in zip(programs, loaded, strict=True)]
    target = loaded[0].target
    return subjects, files.measured(files.read(measured), subjects, target.compute.clock_mhz), target


def _show(found: Fit) -> None:
    for name, (before, after) in found.constants.items():
        note = "  (no measured layer depends on it)" if name in found.undetermined else ""
        typer.echo(f"{name:26s} {before:>9g} -> {after:>9g}{note}")
    for held_out, title in ((False, "fitted to"), (True, "held out")):
        rows = [row for row in found.rows if row.held_out == held_out]
        if rows:
            before, after = (100 * found.error(after, held_out) for after in (False, True))
            typer.echo(f"{title} {counted(len(rows), 'layer')}: mean error {before:.1f} % -> {after:.1f} %")
    worst = sorted(found.rows, key=lambda row: -abs(row.after / row.measured - 1))[:5]
    typer.echo("farthest off:")
    for row in worst:
        mark = " (held out)" if row.held_out else ""
        typer.echo(f"  {row.layer}: measured {row.measured:.0f} cycles, {row.after:.0f} after{mark}")


def _document(target: Target, source: str) -> list[str]:
    """The target's file: what it is of, and every table."""
    from npuflow.base.tables_write import document

    names = ("compute", "numerics", "memory", "dma", "limits", "host")
    head = [f"# Constants fitted to {source} by npuflow target fit.", f"about = {_quoted(target.about)}", ""]
    return [*head, *document((getattr(target, name), name) for name in names)]


def _quoted(text: str) -> str:
    from npuflow.base.tables_write import value

    return value(text or "fitted to measured layer times")
