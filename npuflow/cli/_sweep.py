"""Runs a sweep: builds its points one by one, then prints a table, the best, CSV and plot."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import UsageError, meant
from npuflow.base.wording import counted
from npuflow.cli._engine import stages
from npuflow.cli._errors import lines
from npuflow.cli._events import emit
from npuflow.cli._progress import duration
from npuflow.cli._sweep_asked import check_figures, check_files, check_names, names

if TYPE_CHECKING:
    from npuflow.cli._gate import Gate
    from npuflow.flow.recipe_build import Settings
    from npuflow.flow.recipe_sweep import SweepPoint
    from npuflow.flow.sweep import SweepOutcome

COLUMNS = (
    "simulate.ms",
    "simulate.mb",
    "tiling.cycles",
    "tiling.gap",
    "tiling.mb",
    "energy.uj",
    "fidelity.worst_sqnr_db",
    "quantize.npu_macs",
)
SCORES = "evaluate"                       # the stage whose figures are the network's


@dataclass(frozen=True)
class SweepView:
    """What to show of a sweep."""

    goals: tuple[str, ...]
    show: str | None
    csv: Path | None
    plot: Path | None
    as_json: bool
    gate: Gate | None = None
    dry_run: bool = False


def run(path: Path, sets: Sequence[str], over: Sequence[str], settings: Settings, wanted: SweepView) -> int:
    """Every point's faults before anything is built; 1 if a point failed."""
    from npuflow.flow.recipe import load, parse_set
    from npuflow.flow.recipe_build import open_cache
    from npuflow.flow.recipe_sweep import points
    from npuflow.flow.sweep import axes_of, built, forecast, front, planned

    fixed = [parse_set(text) for text in sets]
    recipe = load(path, fixed, lenient=True)
    axes = axes_of(recipe, [parse_set(text) for text in over])
    asked = names(wanted.goals, wanted.show)
    check_files(wanted.plot, wanted.csv, wanted.goals)
    todo = planned(lambda more: load(path, [*fixed, *more], lenient=True), points(axes), stages(), settings)
    keys = list(dict.fromkeys(key for point, _, _ in todo for key in _numbers(point)))
    gate = wanted.gate
    if gate is not None:
        gate.check([point.name for point, _, _ in todo])
    check_names(asked, keys, list(dict.fromkeys(step.name for _, _, plan in todo for step in plan)))
    if wanted.dry_run:
        _foresee(list(forecast(todo, open_cache(recipe, settings), settings)), as_json=wanted.as_json)
        return 0
    outcomes: list[SweepOutcome] = []
    plans = {point.name: plan for point, _, plan in todo}
    for outcome in built(todo, open_cache(recipe, settings), settings):
        outcomes.append(outcome)
        if gate is not None and not outcome.errors:
            gate.add(outcome.point.name, outcome.products, plans[outcome.point.name])
        sys.stderr.write(f"{len(outcomes)}/{len(todo)}  {_progress(outcome)}\n")
        if not outcome.errors:                             # the others have the same figures
            check_figures(asked, keys, outcome.figures)
    rows = [{**_numbers(o.point), **o.figures} if not o.errors else {} for o in outcomes]
    goals = _goals(rows, [axis.key for axis in axes], wanted.goals)
    best = front(rows, goals) if goals else [False] * len(rows)
    if wanted.csv is not None:
        _write(wanted.csv, _csv(outcomes, best))
    if wanted.plot is not None:
        _plot(wanted.plot, [_said(o.point) for o in outcomes], rows, best, list(goals))
    if wanted.as_json:
        for outcome, good in zip(outcomes, best, strict=True):
            emit(_line(outcome, good))
        emit(
            {
                "event": "sweep",
                "points": len(outcomes),
                "failed": sum(bool(o.errors) for o in outcomes),
                "goals": _words(goals),
            }
        )
    else:
        _table(outcomes, rows, best, [axis.key for axis in axes], wanted.show)
        _conclude(outcomes, best, goals)
    closed = gate.close(as_json=wanted.as_json) if gate is not None else 0
    return _failures(outcomes) or closed


def _foresee(outcomes: Sequence[SweepOutcome], *, as_json: bool) -> None:
    """The counts of every point, and their sums."""
    from npuflow.flow.recipe_build import keep_memos

    keep_memos()
    if as_json:
        for outcome in outcomes:
            emit({**_line(outcome, False), "status": "planned"})
        emit({"event": "sweep", "points": len(outcomes), "failed": 0, "goals": []})
        return
    rows, keys = [o.figures for o in outcomes], list(outcomes[0].point.values)
    _table(outcomes, rows, [False] * len(rows), keys, ",".join(rows[0]))
    words = {"run": "to run", "maybe": "maybe", "hit": "hit"}
    sums = (f"{sum(row[name] for row in rows):.0f} {word}" for name, word in words.items())
    sys.stdout.write(f"{counted(len(outcomes), 'point')}: {', '.join(sums)}\n")


def _plot(
    path: Path, names: Sequence[str], rows: Sequence[Mapping[str, float]], best: Sequence[bool],
    goals: Sequence[str],
) -> None:
    """The first goal upwards, the second to the right."""
    if len(goals) < 2:
        raise UsageError(
            "a plot needs two goals that differ between points",
            because=f"goals: {', '.join(goals) or 'none'}", hint="--goal simulate.ms --goal simulate.mb",
            code="NF-USAGE-033",
        )
    from npuflow.report.figures.builds import pareto
    from npuflow.report.figures.export import write

    write(path, pareto(names, rows, best, right=goals[1], up=goals[0]))


def _progress(outcome: SweepOutcome) -> str:
    found = f"{outcome.ran} ran, {outcome.hit} hit, {duration(outcome.seconds)}"
    return f"{_said(outcome.point)}: {'failed' if outcome.errors else 'done'} ({found})"


def _said(point: SweepPoint) -> str:
    return ", ".join(f"{_last(key)} {_shown(value)}" for key, value in point.values.items())


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{k}={v}" for k, v in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _numbers(point: SweepPoint) -> dict[str, float]:
    """Keys whose values are numbers may be goals, too."""
    return {k: v for k, v in point.values.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _goals(rows: Sequence[Mapping[str, float]], keys: Sequence[str], asked: Sequence[str]) -> dict[str, bool]:
    """Name -> whether more is better: as asked; else time, the network's score (or its worst
    tensor), and less hardware."""
    known = list(dict.fromkeys(name for row in rows for name in row))
    if asked:
        chosen = {name.removeprefix("max:"): name.startswith("max:") for name in asked}
        for name in chosen if known else ():
            if name not in known:
                raise UsageError(
                    f'--goal: no figure or number "{name}"', because=f"known: {', '.join(known)}",
                    hint=meant(name, known), code="NF-USAGE-031",
                )
        return chosen
    time = [n for n in ("simulate.ms", "tiling.cycles") if n in known][:1]
    score = [n for n in known if n.startswith(f"{SCORES}.")][:1] or [
        n for n in known if n == "fidelity.worst_sqnr_db"
    ]
    size = [key for key in keys if key.startswith("target.") and key in known]
    found: list[tuple[Sequence[str], bool]] = [(time, False), (score, True), (size, False)]
    return {
        name: more
        for names, more in found
        for name in names
        if len({row[name] for row in rows if name in row}) > 1
    }


def _columns(rows: Sequence[Mapping[str, float]], keys: Sequence[str], asked: str | None) -> list[str]:
    known = [n for n in dict.fromkeys(name for row in rows for name in row) if n not in keys]
    if asked == "all":
        return known
    if asked:
        names = [name.strip() for name in asked.split(",")]
        for name in names if known else ():
            if name not in known:
                because = f"known: {', '.join(known)}"
                raise UsageError(
                    f'--show: no figure "{name}"',
                    because=because, hint=meant(name, known), code="NF-USAGE-032",
                )
        return names
    scores = [n for n in known if n.startswith(f"{SCORES}.")][:1]
    differ = [n for n in known if len({row.get(n) for row in rows}) > 1]
    chosen = [
        *(n for n in COLUMNS if n in differ and (n != "tiling.cycles" or "simulate.ms" not in known)),
        *scores,
    ]
    if "simulate.mb" in chosen:
        chosen = [n for n in chosen if n != "tiling.mb"]
    return chosen or differ


def _table(
    outcomes: Sequence[SweepOutcome],
    rows: Sequence[Mapping[str, float]],
    best: Sequence[bool],
    keys: Sequence[str],
    asked: str | None,
) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    columns = _columns(rows, keys, asked)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    for key in keys:
        values = [o.point.values[key] for o in outcomes]
        table.add_column(
            _last(key), justify="right" if all(isinstance(v, int | float) for v in values) else "left"
        )
    for name in columns:
        table.add_column(name, justify="right")
    for outcome, row, good in zip(outcomes, rows, best, strict=True):
        cells = [_shown(outcome.point.values[key]) for key in keys]
        figures = [_figure(row[name]) if name in row else "-" for name in columns]
        if outcome.errors:
            figures = ["failed", *[""] * (len(columns) - 1)] if columns else []
        table.add_row("*" if good else "", *map(escape, [*cells, *figures]))
    console = Console()
    (console if console.is_terminal else Console(width=172)).print(table)


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _words(goals: Mapping[str, bool]) -> list[str]:
    return [f"{'most' if more else 'least'} {name}" for name, more in goals.items()]


def _conclude(outcomes: Sequence[SweepOutcome], best: Sequence[bool], goals: Mapping[str, bool]) -> None:
    number = len(outcomes)
    seconds = duration(sum(o.seconds for o in outcomes))
    sys.stdout.write(
        f"{counted(number, 'point')} ({sum(o.ran for o in outcomes)} ran, "
        f"{sum(o.hit for o in outcomes)} hit, {seconds})"
    )
    if goals:
        sys.stdout.write(f"; {sum(best)} marked * that no other beats by {', '.join(_words(goals))}")
    sys.stdout.write("\n")
    folders = {path.parent.parent for o in outcomes for path in o.products.values()}
    if folders:
        from npuflow.flow.recipe_files import shown_path

        sys.stdout.write(f"  products  {shown_path(min(folders))}\n")


def _failures(outcomes: Sequence[SweepOutcome]) -> int:
    """Why points failed, equal reasons once; the exit code."""
    reported: dict[tuple[str, ...], list[str]] = {}
    for outcome in outcomes:
        for error in outcome.errors[:1]:
            reported.setdefault(tuple(lines(error)), []).append(_said(outcome.point))
    for text, points in reported.items():
        more = f" and {len(points) - 3} more" if len(points) > 3 else ""
        sys.stderr.write(f"failed: {'; '.join(points[:3])}{more}\n" + "".join(f"  {line}\n" for line in text))
    return 1 if reported else 0


def _line(outcome: SweepOutcome, good: bool) -> dict[str, Any]:
    return {
        "event": "point",
        "values": dict(outcome.point.values),
        "status": "failed" if outcome.errors else "done",
        "figures": outcome.figures,
        "best": good,
        "seconds": round(outcome.seconds, 6),
        "products": {name: str(path) for name, path in outcome.products.items()},
        "errors": [error.as_dict() for error in outcome.errors],
    }


def _csv(outcomes: Sequence[SweepOutcome], best: Sequence[bool]) -> str:
    keys = list(dict.fromkeys(k for o in outcomes for k in o.point.values))
    names = list(dict.fromkeys(n for o in outcomes for n in o.figures))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*keys, *names, "best", "failed"])
    for o, good in zip(outcomes, best, strict=True):
        values = [_shown(o.point.values.get(k, "")) for k in keys]
        reason = o.errors[0].message if o.errors else ""
        writer.writerow([*values, *(o.figures.get(n, "") for n in names), "yes" if good else "", reason])
    return out.getvalue()


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content)
    except OSError as error:
        raise UsageError(f'cannot write "{path}": {error.strerror}', code="NF-USAGE-025") from error
    sys.stderr.write(f"wrote {path}\n")
