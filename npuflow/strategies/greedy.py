"""Bit by bit: from the fewest bits everywhere, the step that takes most noise away
for its price comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuflow.strategies import STRATEGIES, Levels, Problem
from npuflow.strategies._front import FrontStrategy, pareto
from npuflow.strategies._steps import steps


@STRATEGIES.entry
@dataclass(frozen=True)
class Greedy(FrontStrategy):
    """Every unit starts with as few bits as it may have; one unit at a time gets more."""

    def front(self, problem: Problem) -> Sequence[Levels]:
        return pareto(problem, steps(problem))
