"""The default: nearest where codes are many, coordinate descent where they are few,
if held-out samples agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from npuflow.base.tables import Range
from npuflow.rounders import ROUNDERS, LayerProblem, Rounder, Rounding


@ROUNDERS.entry
@dataclass(frozen=True)
class AutoRounder(Rounder):
    """Layer by layer kept where its error on held-out samples is smaller, and all together
    where the outputs come closer."""

    below: Annotated[int, Range(3, 17)] = 8
    """Weights of so many bits or more are rounded to the nearest; those of fewer by
    `coordinate` with its defaults."""

    judged: ClassVar[bool] = True

    def wants(self, bits: int) -> bool:
        return bits < self.below

    def __call__(self, problem: LayerProblem) -> Rounding:
        made: Rounding = ROUNDERS["coordinate"]()(problem)
        return made
