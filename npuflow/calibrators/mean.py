"""Plain average of each sample's extrema.

Source: onnxruntime's static quantisation, MinMax calibration with CalibMovingAverage, which averages
the extrema of all samples alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuflow.calibrators import CALIBRATORS, Calibrator, Grid, TensorStatistics, fitted


@CALIBRATORS.entry
@dataclass(frozen=True)
class Mean(Calibrator):
    """Every sample counts alike, whatever the order."""

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        if not statistics.sample_min.size:
            return 0.0, 0.0
        lo, hi = (float(np.mean(v, dtype=np.float64)) for v in (statistics.sample_min, statistics.sample_max))
        return fitted(lo, hi, grid)
