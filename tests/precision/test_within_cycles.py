"""A limit of cycles is that of plans, whatever the estimates say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from npuflow.base.errors import InputError
from npuflow.stages.precision import within_cycles
from npuflow.strategies import Budget, Goal, Levels, Output

LIMIT = 0.8


@dataclass
class Estimated:
    """Mixtures of one unit: a level is hundredths of the cycles by the estimate, which is `off` from plans,
    and tenths of a decibel."""

    off: float
    budget: Budget = field(default_factory=lambda: Budget(20.0))
    goal: Goal = field(default_factory=lambda: Goal("cycles", {"cycles": LIMIT}))
    asked: int = 0

    def price(self, levels: Levels, what: str | None = None) -> float:
        return levels[0] / 100

    def planned(self, levels: Levels) -> float:
        return levels[0] / 100 / self.off

    def verified(self, levels: Levels) -> list[Output]:
        return [Output("y", levels[0] / 10, levels[0] / 10)]

    def holds(self, levels: Levels) -> bool:
        return self.budget.holds(self.verified(levels))


def best(problem: Any) -> Levels:
    """The most that the limit allows by the estimate."""
    problem.asked += 1
    level = int(100 * problem.goal.limits["cycles"] + 1e-9)
    if level < 50:
        raise InputError("no mixture", code="NF-QUANT-040")
    return (level,)


@pytest.mark.parametrize("off", [0.8, 0.95, 1.0, 1.2, 1.5])
def test_mixtures_come_near_the_limit_and_keep_it(off: float) -> None:
    problem: Any = Estimated(off)
    found = within_cycles(problem, best, best(problem))  # type: ignore[arg-type]
    assert 0.96 * LIMIT <= problem.planned(found) <= LIMIT
    assert problem.asked <= 3 and problem.goal.limits["cycles"] == LIMIT


def test_what_holds_the_budget_is_not_made_dearer() -> None:
    problem: Any = replace(Estimated(1.5), budget=Budget(7.5))
    found = within_cycles(problem, best, best(problem))  # type: ignore[arg-type]
    assert found == (80,) and problem.asked == 1


def test_a_limit_that_no_plan_keeps() -> None:
    problem: Any = Estimated(0.5)
    assert within_cycles(problem, best, best(problem)) == (80,)  # type: ignore[arg-type]
