"""Gives many bits to the most sensitive units, the first so many of them.
They are ordered by the noise that each makes alone with few bits. It is the baseline of tools that write such
a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuflow.strategies import STRATEGIES, Levels, Problem
from npuflow.strategies._front import Additive, FrontStrategy


@STRATEGIES.entry
@dataclass(frozen=True)
class Qtable(FrontStrategy):
    """The order knows nothing of prices."""

    def front(self, problem: Problem) -> Sequence[Levels]:
        additive = Additive(problem)
        units = range(len(problem.units))
        order = sorted(
            units, key=lambda k: (-float(additive.noise(k, additive.least[k]).max(initial=0.0)), k)
        )
        levels, found = list(additive.least), [additive.least]
        for k in order:
            levels[k] = additive.most[k]
            found.append(tuple(levels))
        return found
