"""Which headline figures of a build are worse than those of an earlier one, by more than is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from npuflow.report.gate.figures import HeadlineFigures

Verdict = Literal["worse", "better", "same", "within", "gone"]
TITLES = {
    "score": "score", "sqnr_db": "worst output, dB", "cycles": "cycles", "external_bytes": "external bytes",
    "program_bytes": "program bytes", "energy_uj": "energy, uJ",
}
STAGES = {
    "score": "evaluate", "sqnr_db": "verdict", "cycles": "simulate", "external_bytes": "simulate",
    "program_bytes": "codegen", "energy_uj": "energy",
}
"""Figure -> the stage that measures it, whose inputs say what changed it."""


@dataclass(frozen=True)
class Allowance:
    """What may become worse without failing. `drop`: points (hundredths) of a score that is a share, dB of
    one in dB, per cent of any other. The rest are per cent of the earlier figure; `size`: of bytes of
    external traffic and of the program."""

    drop: float = 0.3
    cycles: float = 1.0
    size: float = 1.0
    energy: float = 1.0

    def of(self, figure: str) -> float:
        return {"cycles": self.cycles, "energy_uj": self.energy}.get(figure, self.size)


@dataclass(frozen=True)
class FigureChange:
    """A figure of two builds. `change`: how much worse it became, in `unit`; negative: better."""

    figure: str
    before: float
    now: float | None
    change: float
    allowed: float
    unit: str
    verdict: Verdict

    @property
    def failed(self) -> bool:
        return self.verdict in ("worse", "gone")


def compared(before: HeadlineFigures, now: HeadlineFigures, allowed: Allowance) -> list[FigureChange]:
    """Every figure that the earlier build had; one that is no longer measured counts as worse."""
    return [*_accuracy(before, now, allowed.drop), *_costs(before, now, allowed)]


def _accuracy(before: HeadlineFigures, now: HeadlineFigures, drop: float) -> Iterator[FigureChange]:
    """The score where the earlier build had one, else the worst output's decibels."""
    if before.score is not None:
        same = before.score_name == now.score_name
        score = now.score if same else None
        unit, factor = ("dB", 1.0) if before.decibels else ("points", 100.0)
        if unit == "points" and not before.share:
            unit, factor = "%", 100.0 / max(abs(before.score), 1e-12)
        lost = 0.0 if score is None else factor * (before.score - score)
        lost = -lost if before.score_better == "lower" else lost
        yield _change("score", before.score, score, lost, drop, unit)
    elif before.sqnr_db is not None:
        lost = 0.0 if now.sqnr_db is None else before.sqnr_db - now.sqnr_db
        yield _change("sqnr_db", before.sqnr_db, now.sqnr_db, lost, drop, "dB")


def _costs(before: HeadlineFigures, now: HeadlineFigures, allowed: Allowance) -> Iterator[FigureChange]:
    for name in ("cycles", "external_bytes", "program_bytes", "energy_uj"):
        old, new = getattr(before, name), getattr(now, name)
        if old is None:
            continue
        more = 0.0 if new is None else 100.0 * (new - old) / old if old else (0.0 if new <= old else 100.0)
        yield _change(name, old, new, more, allowed.of(name), "%")


def _change(
    figure: str, before: float, now: float | None, change: float, allowed: float, unit: str
) -> FigureChange:
    verdict: Verdict
    if now is None:
        verdict = "gone"
    elif change > allowed + 1e-9:          # figures in decimals: 0.3 points are not 0.30000000000000004
        verdict = "worse"
    else:
        verdict = "within" if change > 0 else "better" if change < 0 else "same"
    return FigureChange(figure, before, now, change, allowed, unit, verdict)


def failed(found: Sequence[FigureChange]) -> list[FigureChange]:
    """Those for which the gate closes."""
    return [one for one in found if one.failed]
