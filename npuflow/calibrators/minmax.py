"""The whole observed range: nothing is clipped, every outlier costs resolution."""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.calibrators import CALIBRATORS, Calibrator, Floats, Grid, TensorStatistics, fitted
from npuflow.calibrators._exact import Rows, extremes


@CALIBRATORS.entry
@dataclass(frozen=True)
class Minmax(Calibrator):
    """Exact extrema over all samples."""

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        return fitted(statistics.lo, statistics.hi, grid)

    def rows(self, rows: Floats, grid: Grid) -> Rows:
        return extremes(rows)
