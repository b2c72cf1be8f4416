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
    from npuflow.report.fitting.power import PowerFit

app = typer.Typer(no_args_is_help=True, add_completion=False)


PowerOption = Annotated[
    Path | None,
    typer.Option(
        "--power", metavar="LOG",
        help="A CSV file of the same layers: layer, one of uj, nj, mj (energy of an inference) or mw "
        "(mean power while it runs), and program. Fits \\[energy], too.",
    ),
]
EnergyOption = Annotated[
    str | None,
    typer.Option("--energy", metavar="TARGET", help="The target whose \\[energy] the fit starts from."),
]


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
    power: PowerOption = None,
    energy: EnergyOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Fit set-up costs, bandwidths and rates of the programs' target to the layer times of a board, and what
    its work costs to a log of its power. Prints every constant and the mean error of the layers before and
    after."""
    from dataclasses import replace

    from npuflow.cli._events import emit
    from npuflow.report.fitting.fit import CONSTANTS
    from npuflow.report.fitting.fit import fit as fitted

    for name in only or ():
        if name not in CONSTANTS:
            raise UsageError(
                f'"{name}" cannot be fitted', hint=suggestion(name, list(CONSTANTS)), code="NF-RUN-036"
            )
    subjects, times, target = _given(measured, programs)
    found = fitted(subjects, times, target, only or list(CONSTANTS), held_out)
    spent = _powered(power, energy, subjects, times, held_out) if power is not None else None
    if out is not None:
        made = found.target if spent is None else replace(found.target, energy=spent.energy)
        write_file(out, "\n".join(_document(made, measured.name)))
    if as_json:
        more = {} if spent is None else _plain("energy_", spent)
        emit({"event": "fit", **_plain("", found), **more})
        return
    _show(found, "cycles")
    if spent is not None:
        _show(spent, "uJ")
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


def _powered(
    log: Path, energy: str | None, subjects: list[Subject], times: list[Floats], held_out: float
) -> PowerFit:
    """The table of energy by a power log; it starts from a target's, if there is one."""
    from npuflow.cli._energy import table_for
    from npuflow.report.fitting import power

    clock = subjects[0].program.target.compute.clock_mhz
    milliseconds = [one / clock / 1000 for one in times]
    start = table_for(subjects[0].program, energy)
    return power.fit(subjects, power.read(log, subjects, milliseconds), milliseconds, start, held_out)


def _plain(head: str, found: Fit | PowerFit) -> dict[str, object]:
    """A fit as JSON has it, its names behind `head`."""
    from dataclasses import asdict

    return {
        f"{head}constants": {name: list(pair) for name, pair in found.constants.items()},
        f"{head}undetermined": found.undetermined, f"{head}layers": [asdict(row) for row in found.rows],
    }


def _show(found: Fit | PowerFit, unit: str) -> None:
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
        typer.echo(f"  {row.layer}: measured {row.measured:.4g} {unit}, {row.after:.4g} after{mark}")


def _document(target: Target, source: str) -> list[str]:
    """The target's file: what it is of, and every table."""
    from npuflow.base.tables_write import document

    tables = ("compute", "numerics", "memory", "dma", "limits", "host")
    names = (*tables, *(("energy",) if target.energy is not None else ()))
    head = [f"# Constants fitted to {source} by npuflow target fit.", f"about = {_quoted(target.about)}", ""]
    return [*head, *document((getattr(target, name), name) for name in names)]


def _quoted(text: str) -> str:
    from npuflow.base.tables_write import value

    return value(text or "fitted to measured layer times")
