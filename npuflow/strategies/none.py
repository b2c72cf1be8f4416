"""The widths of [quantize] as they are."""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.ir.contracts import STRATEGIES
from npuflow.ir.precision import NARROW, Levels, Problem, Strategy


@STRATEGIES.entry
@dataclass(frozen=True)
class Keep(Strategy):
    """Nothing is searched, nothing is widened."""

    def __call__(self, problem: Problem) -> Levels:
        return (NARROW,) * len(problem.units)
