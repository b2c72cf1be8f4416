"""The schedule's time beside the clock, term by term: two computations of the same
cycles that share no code."""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.program.loop_steps import LoopSteps
from npuflow.report.profile.measure import TERMS, Profile

TERM_BAR, TOTAL_BAR, GROUP_BAR = 0.02, 0.02, 0.05
FORMS = {"schedule": "cycles", "searched": "searched"}      # where a program's metadata has their cycles
SMALL = 0.01              # a term below this share of all cycles is not judged by its ratio


@dataclass(frozen=True)
class CycleComparison:
    """One figure by both: cycles, and their ratio less one. `bar`: what the ratio may be."""

    name: str
    clock: float
    schedule: float
    bar: float

    @property
    def error(self) -> float:
        return self.schedule / self.clock - 1 if self.clock else float(self.schedule > 0)

    @property
    def within(self) -> bool:
        return abs(self.error) <= self.bar

    def __str__(self) -> str:
        return (
            f"{self.name} {self.clock:,.0f} by the clock, {self.schedule:,.0f} by the schedule "
            f"({self.error:+.1%})"
        )


def compare(found: Profile, form: str = "schedule") -> tuple[CycleComparison, ...]:
    """The NPU's part of the program, then each term; empty for a program without a plan. `form`: "schedule",
    or "searched", by which the search ranked its candidates."""
    totals = found.totals()
    planned = found.program.meta.get("plan", {}).get(FORMS[form])
    if not planned:
        return ()
    # the host's are one figure: nothing to compare
    rows = [CycleComparison("cycles", found.cycles, planned, TOTAL_BAR)]
    floor = SMALL * found.cycles
    for term in TERMS:
        clock, scheduled = totals["terms"][term], totals[f"{form}_terms"].get(term)
        if scheduled is not None and max(clock, scheduled) > floor:
            rows.append(CycleComparison(term, clock, scheduled, TERM_BAR))
    return tuple(rows)


def worst_groups(found: Profile, most: int = 5) -> tuple[CycleComparison, ...]:
    """Groups whose schedule time is farthest from the clock: by the sum of their engines' terms, and by the
    cycles that they add to the program where these are more than a trifle. Loops that run at the same time
    add them together: which group ends a cycle depends on the other loop."""
    rows, floor, at_once = [], SMALL * found.cycles, LoopSteps(found.program).at_once
    for row in found.layers():
        if row["schedule_terms"]:
            clock, scheduled = (sum(row[key].values()) for key in ("terms", "schedule_terms"))
            rows.append(CycleComparison(f"terms of {row['name']}", clock, scheduled, GROUP_BAR))
            if max(row["cycles"], row["schedule"]) > floor and at_once.isdisjoint(row["nodes"]):
                name = f"cycles of {row['name']}"
                rows.append(CycleComparison(name, row["cycles"], row["schedule"], GROUP_BAR))
    return tuple(sorted(rows, key=lambda c: -abs(c.error))[:most])


def apart(found: Profile) -> tuple[CycleComparison, ...]:
    """Every figure of the schedule that is farther from the clock than its bar."""
    return tuple(row for row in (*compare(found), *worst_groups(found)) if not row.within)
