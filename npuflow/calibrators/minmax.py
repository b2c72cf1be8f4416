"""The whole observed range: nothing is clipped, every outlier costs resolution."""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.calibrators import CALIBRATORS, Calibrator, Grid, TensorStatistics, fitted


@CALIBRATORS.entry
@dataclass(frozen=True)
class Minmax(Calibrator):
    """Exact extrema over all samples."""

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        return fitted(statistics.lo, statistics.hi, grid)
