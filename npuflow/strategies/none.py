"""The widths of [quantize] as they are."""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.strategies import NARROW, STRATEGIES, Levels, Problem, Strategy


@STRATEGIES.entry
@dataclass(frozen=True)
class Keep(Strategy):
    """Nothing is searched, nothing is widened."""

    def __call__(self, problem: Problem) -> Levels:
        return (NARROW,) * len(problem.units)
