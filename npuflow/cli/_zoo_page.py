"""The page of a zoo: a table in Markdown, its notes, and a picture beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from npuflow.base.wording import counted
from npuflow.cli._files import write_file

PAGE, PICTURE, SCORES = "zoo.md", "zoo.svg", "evaluate"
COLUMNS = (
    "network", "target", "score", "float", "program", "agreement", "SQNR, dB", "cycles", "MB", "energy, uJ",
    "gap", "build, s", "warnings",
)
RIGHT = set(COLUMNS[3:-1])
MEANING = """\
- **float**: the score of the network in floats, on the evaluation data; **program**: that of the program.
- **agreement**: share of samples with the same greatest output; **SQNR**: of the first output, on these data.
- **cycles**, **MB**, **energy**: of an inference, MB over the external bus, energy by the target's table;
  **gap**: cycles over their lower bound.
- **build**: what all steps took when they ran; those that targets have in common count for each.
- **warnings**: numbers of the notes below."""

Status = Literal["built", "failed", "not installed", "not reached"]


@dataclass
class ZooRow:
    """A network on a target. `figures`: by stage, what its product says of itself; `seconds`: what all steps
    took when they ran; `notes`: warnings, or why there is no program."""

    network: str
    target: str
    status: Status = "not reached"
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def score(self) -> tuple[str, float | None, float | None]:
        """The metric's first figure: its name, the float network's where it says anything, the program's."""
        found = self.figures.get(SCORES, {})
        name = next(iter(found), "")
        return name, found.get("float"), found.get(name)

    @property
    def drop(self) -> float | None:
        """Percentage points that the program's score is below the float network's, of scores that are
        shares."""
        _, real, mine = self.score
        if real is None or mine is None or max(abs(real), abs(mine)) > 1.0:
            return None
        return 100 * (real - mine)


def write(rows: Sequence[ZooRow], folder: Path) -> list[Path]:
    """The page, and the picture where there is something to draw."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [folder / PICTURE] if _draw(rows, folder / PICTURE) else []
    write_file(folder / PAGE, page(rows, picture=bool(drawn)))
    return [folder / PAGE, *drawn]


def page(rows: Sequence[ZooRow], *, picture: bool) -> str:
    """All of it in Markdown."""
    notes = list(dict.fromkeys(note for row in rows for note in row.notes))
    parts = ["# Networks on targets", "\n".join(_counted(rows))]
    parts += [f"![SQNR, time and energy of every network on every target]({PICTURE})"] if picture else []
    parts += [MEANING, "\n".join(_table(rows, notes))]
    numbered = [f"{number}. {_plain(note)}" for number, note in enumerate(notes, 1)]
    parts += ["\n".join(["## Notes", "", *numbered])] if notes else []
    return "\n\n".join(parts) + "\n"


def _counted(rows: Sequence[ZooRow]) -> Iterator[str]:
    from npuflow.checks.evaluate import POINT

    built = [row for row in rows if row.status == "built"]
    networks, targets = len({row.network for row in rows}), len({row.target for row in rows})
    what = f"{counted(networks, 'network')}, {counted(targets, 'target')}"
    yield f"{what}: {len(built)} of {counted(len(rows), 'row')} built."
    for status in ("failed", "not installed", "not reached"):
        number = sum(row.status == status for row in rows)
        if number:
            yield f"{number} {status}."
    judged = [row for row in built if row.drop is not None]
    low = [row for row in judged if (row.drop or 0.0) > 100 * POINT]
    silent = [f"{row.network} on {row.target}" for row in low if not row.notes]
    noted = sum(bool(row.notes) for row in judged) - (len(low) - len(silent))
    if judged:
        yield (
            f"Of {counted(len(judged), 'score')} that are shares, {len(judged) - len(low)} are at most one "
            f"point below the float network's, {noted} of them with a warning all the same"
            f"{_lower(len(low), silent)}."
        )


def _lower(number: int, silent: Sequence[str]) -> str:
    """What is said of scores that are lower. `silent`: those that no warning is about."""
    if not number:
        return ""
    rest = f", without one {', '.join(silent)}" if silent else ""
    return f"; {number} are lower, {number - len(silent)} of them with a warning{rest}"


def _table(rows: Sequence[ZooRow], notes: Sequence[str]) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"| {' | '.join('---:' if name in RIGHT else '---' for name in COLUMNS)} |"
    for row in rows:
        yield f"| {' | '.join(_cells(row, notes))} |"


def _cells(row: ZooRow, notes: Sequence[str]) -> list[str]:
    numbers = ", ".join(str(notes.index(note) + 1) for note in row.notes)
    if row.status != "built":
        status = f"**{row.status}** {numbers}".strip()
        return [row.network, row.target, *["-"] * (len(COLUMNS) - 3), status]
    name, real, mine = row.score
    scores, clock = row.figures.get(SCORES, {}), row.figures.get("simulate", {})
    energy, tiling = row.figures.get("energy", {}), row.figures.get("tiling", {})
    plain: Callable[[float], str] = "{:.3g}".format
    return [
        row.network, row.target, name or "-", _shown(real, _score), _shown(mine, _score),
        _shown(scores.get("agreement"), _score), _shown(scores.get("sqnr_db"), "{:.1f}".format),
        _shown(clock.get("cycles"), "{:,.0f}".format), _shown(clock.get("mb"), plain),
        _shown(energy.get("uj"), plain),
        _shown(tiling.get("gap"), "{:.2f}".format), f"{row.seconds:.0f}", numbers,
    ]


def _score(value: float) -> str:
    return f"{value:.3f}" if abs(value) <= 1 else f"{value:.1f}"


def _shown(value: Any, form: Callable[[float], str]) -> str:
    return form(value) if isinstance(value, int | float) else "-" if value is None else str(value)


def _plain(text: str) -> str:
    """On one line, and no table's."""
    return " ".join(text.split()).replace("|", "\\|")


def _draw(rows: Sequence[ZooRow], path: Path) -> bool:
    from npuflow.report.figures.builds import networks
    from npuflow.report.figures.export import write as drawn

    points = []
    for row in rows if any(row.status == "built" for row in rows) else ():
        scores, clock = row.figures.get(SCORES, {}), row.figures.get("simulate", {})
        points.append({
            "network": row.network, "target": row.target, "sqnr": scores.get("sqnr_db"),
            "ms": clock.get("ms"), "uj": row.figures.get("energy", {}).get("uj"),
        })
    panels = {
        "sqnr": ("SQNR, dB", "linear"), "ms": ("ms an inference", "log"), "uj": ("uJ an inference", "log"),
    }
    kept = {k: v for k, v in panels.items() if any(isinstance(p[k], int | float) for p in points)}
    if kept:
        drawn(path, networks(points, kept))
    return bool(kept)
