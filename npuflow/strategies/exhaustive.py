"""Every mixture there is: for small networks, and to judge the other searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from npuflow.base.errors import InputError, Where
from npuflow.strategies import STRATEGIES, Levels, Problem
from npuflow.strategies import _tuned as tuned
from npuflow.strategies._front import FrontStrategy, pareto


@STRATEGIES.entry
@dataclass(frozen=True)
class Exhaustive(FrontStrategy):
    """The exact front of added noise and estimated price. InputError where there are too many mixtures."""

    def front(self, problem: Problem) -> Sequence[Levels]:
        count = prod(len(unit.candidates) for unit in problem.units)
        if count > tuned.ALL_MIXTURES:
            raise InputError(
                f"{count:.3g} mixtures of widths are too many to try all",
                because=f'strategy = "exhaustive" tries at most {tuned.ALL_MIXTURES:,}',
                hint='strategy = "ilp", or fewer widths in [precision]',
                where=Where(key="precision.strategy"),
                code="NF-QUANT-042",
            )
        return pareto(problem, product(*(unit.candidates for unit in problem.units)))
