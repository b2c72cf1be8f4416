"""Every weight to the nearest code, by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.rounders import ROUNDERS, LayerProblem, Rounder, Rounding


@ROUNDERS.entry
@dataclass(frozen=True)
class Nearest(Rounder):
    """No moments and no samples."""

    plain: ClassVar[bool] = True

    def __call__(self, problem: LayerProblem) -> Rounding:
        return problem.nearest()
