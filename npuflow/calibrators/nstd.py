"""So many standard deviations around the mean, within the observed extrema.

Source: Arm China's Compass optimizer, strategy "<n>std" (3std in its examples).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from npuflow.base.tables import Range
from npuflow.calibrators import CALIBRATORS, Calibrator, Grid, TensorStatistics, around_mean


@CALIBRATORS.entry
@dataclass(frozen=True)
class Nstd(Calibrator):
    """[mean - n std, mean + n std], over all samples together."""

    n: Annotated[float, Range(0.1, 100)] = 3.0

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        reach = self.n * statistics.std
        return around_mean(statistics, reach, grid)
