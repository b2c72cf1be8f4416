"""The gate of a build or a sweep: figures held against a baseline, and the keys that made them worse."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuflow.base.errors import UsageError, suggestion
from npuflow.base.wording import counted
from npuflow.cli._columns import columns
from npuflow.cli._events import emit
from npuflow.cli._recorded import REPORT, BuildRecord, RecordedBuild, read, reported, write
from npuflow.flow.lock import definitions
from npuflow.flow.lock import read as read_lock
from npuflow.flow.lock_brief import brief
from npuflow.report.gate.compare import STAGES, TITLES, Allowance, FigureChange, compared

if TYPE_CHECKING:
    from npuflow.flow.explain import Reason
    from npuflow.flow.lock import Lock
    from npuflow.flow.plan import Plan

CLOSED = 3
"""The exit code of a build that is done, and worse than its baseline allows."""
MANY = 4                                  # changed keys that a row names


@dataclass
class Gate:
    """What builds are held against, and where their own record goes."""

    baseline: BuildRecord | None
    allowed: Allowance
    record: Path | None
    built: dict[str, tuple[RecordedBuild, Plan]] = field(default_factory=dict)

    def check(self, names: Sequence[str]) -> None:
        """The baseline must have one of the builds that there will be."""
        base = self.baseline
        if base is None or any(base.of(name, len(names) == 1) is not None for name in names):
            return
        raise UsageError(
            f'the baseline "{base.path}" has no build called {" or ".join(names[:3])}',
            because=f"it has {', '.join(list(base.builds)[:6])}",
            hint=suggestion(names[0], list(base.builds)), code="NF-USAGE-351",
        )

    def add(self, name: str, products: Mapping[str, Path], plan: Plan) -> None:
        """Note a build that is done, whose lock lies beside its products."""
        if REPORT not in products:
            raise UsageError(
                f'"{name}" has no figures to judge or record', because="its stages write no report.json",
                code="NF-USAGE-352",
            )
        report = products[REPORT]
        found = read_lock(report.parent / f"{name}.lock")
        if found is not None:
            found.reach = {step.name: frozenset(definitions(step)) for step in plan}
        kept = brief(found) if found is not None else None
        self.built[name] = RecordedBuild(reported(report), kept), plan

    def close(self, *, as_json: bool) -> int:
        """Write the record, print what became worse; the exit code."""
        if self.record is not None and self.built:
            write(self.record, {name: one for name, (one, _) in self.built.items()})
            sys.stderr.write(f"wrote {self.record}\n")
        if self.baseline is None:
            return 0
        rows = list(self._rows(self.baseline))
        if as_json:
            for row in rows:
                emit(row.line())
        else:
            sys.stdout.write("\n".join(_table(rows, self.baseline)) + "\n")
        return CLOSED if any(row.change.failed for row in rows) else 0

    def _rows(self, base: BuildRecord) -> Iterator[GateRow]:
        alone = len(self.built) == 1
        for name, (now, plan) in self.built.items():
            before = base.of(name, alone)
            if before is None:
                sys.stderr.write(f'note: the baseline has no "{name}", which is not judged\n')
                continue
            for change in compared(before.figures, now.figures, self.allowed):
                keys = changed_keys(change.figure, before.lock, now.lock, plan) if change.failed else []
                yield GateRow("" if alone else name, change, keys)


@dataclass(frozen=True)
class GateRow:
    """A figure of a build beside the baseline's. `keys`: what changed it, nearest first."""

    build: str
    change: FigureChange
    keys: Sequence[str]

    def line(self) -> dict[str, Any]:
        """For `--json`."""
        c = self.change
        return {
            "event": "gate", "build": self.build, "figure": c.figure, "before": c.before, "now": c.now,
            "worse_by": round(c.change, 6), "allowed": c.allowed, "unit": c.unit, "verdict": c.verdict,
            "keys": list(self.keys),
        }


def opened(baseline: Path | None, record: Path | None, allowed: Allowance, until: str | None) -> Gate:
    """The gate of a command, its baseline read."""
    if until is not None:
        option = "--baseline" if baseline is not None else "--record"
        raise UsageError(
            f"{option} needs the figures of a whole build", because=f"--until {until} ends it before",
            hint="leave out --until", code="NF-USAGE-353",
        )
    return Gate(read(baseline) if baseline is not None else None, allowed, record)


def changed_keys(figure: str, before: Lock | None, now: Lock | None, plan: Plan) -> list[str]:
    """The keys whose change led to a figure, those of the nearest stages first, as `npuflow why` has them."""
    from npuflow.flow.explain import why

    if before is None or now is None:
        return ["(no lock beside the baseline)"] if before is None else []
    sources = {s.name: {p: i.step for p, i in s.inputs.items() if i.step is not None} for s in plan}
    reason = why(STAGES[figure], before, now, sources)
    if reason.status == "gone":
        return [f"no step {reason.stage} any more"]
    found = list(dict.fromkeys(key for one in _by_depth(reason) for key in _keys(one)))
    return found or ["(nothing that the cache's keys hold)"]


def _by_depth(reason: Reason) -> Iterator[Reason]:
    """A reason and its causes, level by level."""
    level = [reason]
    while level:
        yield from level
        level = [cause for one in level for cause in one.causes]


def _keys(reason: Reason) -> Iterator[str]:
    """What changed at one stage by itself: keys of the recipe, else code, files, libraries and plug-ins."""
    own = [c for c in reason.changes if not c.field.startswith("inputs.")]
    config = [c for c in own if c.field.startswith("config.")]
    for change in config:
        yield str(change).removeprefix("config.")
    if config:                             # plug-ins and items follow from what selects them
        return
    yield from (f"code of {change.field}" for change in reason.code)
    for change in own:
        if not (reason.code and change.field.startswith(("code", "plugins."))):
            yield f"{change} (of {reason.stage})"
    if reason.items and not own and not reason.causes:
        yield f"other items, or others in them (of {reason.stage})"


def _table(rows: Sequence[GateRow], base: BuildRecord) -> Iterator[str]:
    worse = [row for row in rows if row.change.failed]
    if worse:
        cells = [["", "figure", "before", "now", "worse by", "allowed", "changed"]]
        for row in worse:
            nearest, *more = _shown(row.keys) or [""]
            cells.append([row.build, *_figures(row.change), nearest])
            cells += [["", "", "", "", "", "", key] for key in more]
        first = 0 if any(row.build for row in worse) else 1        # of one build, its name is left out
        yield from columns([line[first:] for line in cells], range(2 - first, 6 - first))
    number = counted(len(rows), "figure")
    ends = f"{len(worse)} of {number} worse" if worse else f"none of {number} is worse"
    yield f"gate: {ends} than {base.path} allows"


def _shown(keys: Sequence[str]) -> list[str]:
    more = len(keys) - MANY
    return [*keys[:MANY], *([f"and {more} more"] if more > 0 else [])]


def _figures(change: FigureChange) -> list[str]:
    now = "not measured" if change.now is None else number(change.now)
    by = "" if change.now is None else f"{change.change:.3g} {change.unit}"
    allowed = f"{change.allowed:g} {change.unit}"
    return [TITLES[change.figure], number(change.before), now, by, allowed]


def number(value: float) -> str:
    """A figure for a table: whole ones in full, others with five digits."""
    return f"{value:,.0f}" if value == round(value) and abs(value) >= 10 else f"{value:.5g}"
