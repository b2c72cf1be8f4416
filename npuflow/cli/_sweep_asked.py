"""Checks what the options of a sweep name against its plans, before a point is built.
Names of figures are checked against the first point's, before the others are built.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from npuflow.base.errors import UsageError, suggestion

Names = Sequence[tuple[str, str, str]]   # option, name, code of the error


def names(goals: Sequence[str], show: str | None) -> Names:
    """The figures and keys that `--goal` and `--show` name."""
    found = [("--goal", one.removeprefix("max:"), "NF-USAGE-031") for one in goals]
    columns = [] if show in (None, "", "all") else str(show).split(",")
    return [*found, *(("--show", one.strip(), "NF-USAGE-032") for one in columns)]


def check_names(asked: Names, keys: Collection[str], stages: Collection[str]) -> None:
    """Every name must be a figure of a stage that is built, STAGE.NAME; a goal may be a swept number, too."""
    for option, name, code in asked:
        own = keys if option == "--goal" else ()
        if name in own or name.rpartition(".")[0] in stages:
            continue
        known = [*own, *stages]
        near = suggestion(name if "." not in name else name.rpartition(".")[0], known)
        raise UsageError(
            f'{option}: no figure or number "{name}"',
            because=f"figures are called STAGE.NAME, as tiling.cycles; the sweep builds {', '.join(stages)}",
            hint=near, code=code,
        )


def check_figures(asked: Names, keys: Collection[str], figures: Collection[str]) -> None:
    """Every name must be one of the figures of a point; a goal may be a swept number, too."""
    for option, name, code in asked:
        known = [*(keys if option == "--goal" else ()), *figures]
        if name not in known:
            raise UsageError(
                f'{option}: no figure or number "{name}"', because=f"known: {', '.join(known)}",
                hint=suggestion(name, tuple(known)), code=code,
            )


def check_files(plot: Path | None, csv: Path | None, goals: Sequence[str]) -> None:
    """A plot needs two goals and a form, a table a folder to be written into."""
    if plot is not None:
        from npuflow.report.figures.export import form_of

        form_of(plot)
    if plot is not None and len(goals) == 1:
        raise UsageError(
            "a plot needs two goals that differ between points", because=f"goals: {', '.join(goals)}",
            hint="--goal simulate.ms --goal simulate.mb", code="NF-USAGE-033",
        )
    if csv is not None and not csv.absolute().parent.is_dir():
        raise UsageError(
            f'cannot write "{csv}"', because=f"there is no folder {csv.absolute().parent}",
            hint=f"mkdir -p {csv.parent}", code="NF-USAGE-025",
        )
