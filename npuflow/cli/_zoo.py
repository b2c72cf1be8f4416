"""Builds a folder of recipes for several targets: a row for each, which is kept while nothing changes."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import Interrupted, NpuflowError, UsageError, suggestion
from npuflow.base.wording import counted
from npuflow.cli._engine import stages
from npuflow.cli._events import emit, figures
from npuflow.cli._progress import duration, judged, warned_once
from npuflow.cli._zoo_page import ZooRow, write

if TYPE_CHECKING:
    from npuflow.flow.events import Event
    from npuflow.flow.memo import Memo
    from npuflow.flow.recipe import Recipe
    from npuflow.flow.recipe_build import Settings

ABSENT = "NF-RECIPE-005"                  # the package that a path names is not installed
SHOWN = 3                                 # errors of a row that fails
TARGET, OWN = "target", "its own"


def run(
    folder: Path, targets: Sequence[str], only: Sequence[str], sets: Sequence[str],
    where: tuple[Settings, Path], *, as_json: bool,
) -> int:
    """Build what is missing, write the page; 1 if a network failed. `where`: settings, and the folder of the
    page."""
    from npuflow.flow.recipe import parse_set

    recipes, (settings, out) = chosen(folder, only), where
    check_targets(targets)
    for text in sets:
        parse_set(text)                   # a mistake there is none of the recipes'
    begun = time.perf_counter()
    todo = [
        opened(path, name, sets, settings) for path in recipes for name in targets_of(path, targets, sets)
    ]
    stopped: BaseException | None = None
    ran = 0
    for number, one in enumerate(todo, 1):       # rows that are known are in the page, whatever comes now
        try:
            fresh = not one.done and build(one, replace(settings, out=out / "locks" / one.row.target))
        except (KeyboardInterrupt, Interrupted) as stop:
            one.row, stopped = ZooRow(one.row.network, one.row.target), stop
            break
        ran += fresh
        if fresh or one.row.status != "built":
            sys.stderr.write(f"{number}/{len(todo)}  {_progress(one.row)}\n")
        if as_json:
            emit(line(one.row))
    rows = [one.row for one in todo]
    files = write(rows, out)
    sys.stderr.write("".join(f"wrote {path}\n" for path in files))
    if stopped is not None:
        raise stopped
    counts = Counter(row.status for row in rows)
    if as_json:
        emit({
            "event": "zoo", "rows": len(rows), "ran": ran, "failed": counts["failed"],
            "absent": counts["not installed"], "files": [str(path) for path in files],
        })
    else:
        said = ", ".join(f"{number} {status}" for status, number in counts.items())
        rest = f"{ran} built now" if ran else "nothing to do"
        took = duration(time.perf_counter() - begun)
        sys.stdout.write(f"{counted(len(rows), 'row')}: {said} ({rest}, {took})\n")
    return int(counts["failed"] > 0)


def chosen(folder: Path, only: Sequence[str]) -> list[Path]:
    """The recipes of a folder, but for files whose names begin with "_", which others extend."""
    inside = sorted(folder.glob("*.toml")) if folder.is_dir() else []
    found = [folder] if folder.is_file() else [path for path in inside if not path.name.startswith("_")]
    if not found:
        raise UsageError(
            f'no recipes in "{folder}"', because="a zoo is a folder of recipes, one for each network",
            hint="npuflow zoo FOLDER; npuflow new MODEL writes a recipe", code="NF-USAGE-420",
        )
    names = [path.stem for path in found]
    for name in only:
        if not any(fnmatchcase(one, name) for one in names):
            raise UsageError(
                f'--only: there is no recipe "{name}" in "{folder}"',
                hint=suggestion(name, names), code="NF-USAGE-421",
            )
    return [path for path in found if not only or any(fnmatchcase(path.stem, name) for name in only)]


def check_targets(names: Sequence[str]) -> None:
    """Before anything is built."""
    from npuflow.cli.targets import path_of

    if len(set(names)) < len(names):
        raise UsageError("--targets names one twice", because=", ".join(names), code="NF-USAGE-422")
    for name in names:
        if not name.startswith("pkg:"):
            path_of(name)


def targets_of(path: Path, stated: Sequence[str], sets: Sequence[str]) -> list[str]:
    """The targets of a recipe: those of the option, else of its [sweep], else its own, which is "". A recipe
    that cannot be read has a row all the same, which says why."""
    from npuflow.flow.recipe import load

    if stated:
        return list(stated)
    try:
        recipe = load(path, sets, lenient=True)
    except NpuflowError:
        return [""]
    swept = recipe.tables.get("sweep", {})
    names = swept.get(TARGET) if isinstance(swept, dict) else None
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        return list(names)
    return [""]


@dataclass
class ZooBuild:
    """A row to come: its recipe, and the proof that it is known. `begun`: before anything was read (ns)."""

    row: ZooRow
    begun: int
    recipe: Recipe | None = None
    memo: Memo | None = None

    @property
    def done(self) -> bool:
        return self.row.status != "not reached"


def opened(path: Path, target: str, sets: Sequence[str], settings: Settings) -> ZooBuild:
    """A network on a target ("": the recipe's own). What it needs is unchanged since its row was made: that
    row."""
    from npuflow.flow.memo import Memo
    from npuflow.flow.recipe import load
    from npuflow.flow.recipe_build import cache_place

    one = ZooBuild(ZooRow(path.stem, target or OWN), time.time_ns())
    overrides = [*sets, *([f'{TARGET}="{target}"'] if target else [])]
    try:
        one.recipe = recipe = load(path, overrides, lenient=True)
        named = recipe.tables.get(TARGET)
        one.row.target = target or str(named.get("name", OWN) if isinstance(named, dict) else OWN)
        one.memo = Memo(cache_place(recipe, settings), ["zoo", str(path.absolute()), *overrides])
    except NpuflowError as error:
        _failed(one.row, error.faults())
        return one
    if one.memo.holds():
        one.row = ZooRow(**one.memo.payload)
    return one


def build(one: ZooBuild, settings: Settings) -> bool:
    """Make the row; whether anything ran for it."""
    from npuflow.flow.memo_write import BuiltRecipe, remember
    from npuflow.flow.recipe_build import open_cache, plan_build, run_plan
    from npuflow.flow.run_state import Result

    row, recipe = one.row, one.recipe
    assert recipe is not None and one.memo is not None
    try:
        store = open_cache(recipe, settings)
        plan = plan_build(recipe, stages(), settings)
        result = run_plan(plan, recipe, store, settings, _noting(row))
        errors = result.errors
    except Interrupted:
        raise
    except NpuflowError as error:
        errors = list(error.faults())
    if errors:
        _failed(row, errors)
        return False
    row.status = "built"
    # nothing of the cache is needed for a row: it says all itself, whatever later rows do with their records
    remember(one.memo, one.begun, [BuiltRecipe(recipe, plan, store, Result(), None)], asdict(row))
    return result.ran > 0


def _failed(row: ZooRow, errors: Sequence[NpuflowError]) -> None:
    row.status = "not installed" if any(one.code == ABSENT for one in errors) else "failed"
    row.notes = list(dict.fromkeys(_said(one) for one in errors))[:SHOWN]
    row.figures, row.seconds = {}, 0.0


def _noting(row: ZooRow) -> Callable[[Event], None]:
    """Figures, warnings and seconds of steps, as they are settled or found."""
    from npuflow.flow.events import StepEvent, Warned

    known: list[Warned] = []

    def note(event: Event) -> None:
        if not isinstance(event, StepEvent) or event.status not in ("hit", "ran"):
            return
        row.seconds += event.seconds
        if event.item is not None:
            return
        row.figures[event.stage] = figures(event.summary)
        found, verdict = warned_once(event, known)[1], judged(event)
        if found is not None:
            row.notes.append(found.message)
        if verdict.get("verdict_ok") is False and event.stage == "report":
            row.notes.append(str(verdict["verdict"]))

    return note


def _said(error: NpuflowError) -> str:
    because = f"; {error.because.splitlines()[0]}" if error.because else ""
    hint = f" ({error.hint})" if error.code == ABSENT else ""
    return f"{error.code} {error.message}{because}{hint}".strip()


def _progress(row: ZooRow) -> str:
    name, real, mine = row.score
    score = f", {name} {mine:.4g}" if mine is not None else ""
    beside = f" (float {real:.4g})" if real is not None else ""
    warnings = f", {counted(len(row.notes), 'warning')}" if row.status == "built" and row.notes else ""
    text = f"{duration(row.seconds)}{score}{beside}{warnings}" if row.status == "built" else row.notes[0]
    return f"{row.network} on {row.target}: {row.status}: {text}"


def line(row: ZooRow) -> dict[str, Any]:
    """For `--json`."""
    name, real, mine = row.score
    values = {
        f"{stage}.{key}": value for stage, held in row.figures.items() for key, value in held.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return {
        "event": "row", "network": row.network, "target": row.target, "status": row.status,
        "score_name": name, "float": real, "score": mine, "seconds": round(row.seconds, 6),
        "figures": values, "notes": list(row.notes),
    }
