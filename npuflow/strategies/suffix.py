"""A cut through the network: many bits from some layer to the end, few before it.
The baseline of tools that keep the last layers wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuflow.strategies import STRATEGIES, Levels, Problem
from npuflow.strategies._front import Additive, FrontStrategy


@STRATEGIES.entry
@dataclass(frozen=True)
class Suffix(FrontStrategy):
    """Every cut in the order of the graph, the last layer first."""

    def front(self, problem: Problem) -> Sequence[Levels]:
        additive = Additive(problem)
        places = sorted({unit.place for unit in problem.units}, reverse=True)
        found = [additive.least]
        for cut in places:
            found.append(
                tuple(
                    most if unit.place >= cut else least
                    for unit, least, most in zip(problem.units, additive.least, additive.most, strict=True)
                )
            )
        return found
