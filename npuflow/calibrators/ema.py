"""Running average of each sample's extrema: a rare outlier moves the range a little and is then forgotten.

Sources: B. Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only
inference", 2018 (exponential moving averages of ranges); Arm China's Compass optimizer, strategy "mean", with
running_statistic_momentum = 0.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from npuflow.base.tables import Range
from npuflow.calibrators import CALIBRATORS, Calibrator, Grid, TensorStatistics, fitted


@CALIBRATORS.entry
@dataclass(frozen=True)
class Ema(Calibrator):
    """Exponential moving average over batches, in sample order."""

    momentum: Annotated[float, Range(0, 1)] = 0.9   # share of the old value that stays
    batch: Annotated[int, Range(1)] = 1             # samples whose extrema count as one

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        lo = _batched(statistics.sample_min, self.batch, np.minimum)
        hi = _batched(statistics.sample_max, self.batch, np.maximum)
        return fitted(self._average(lo), self._average(hi), grid)

    def _average(self, values: npt.NDArray[np.float64]) -> float:
        if not values.size:
            return 0.0
        # The first value starts the average: it carries the weight that later ones leave.
        age = np.arange(len(values))[::-1]
        weights = (1 - self.momentum) * self.momentum ** age.astype(np.float64)
        weights[0] = self.momentum ** float(len(values) - 1)
        return float(weights @ values)


def _batched(values: npt.NDArray[np.float32], batch: int, extremum: np.ufunc) -> npt.NDArray[np.float64]:
    starts = np.arange(0, len(values), batch)
    return np.asarray(extremum.reduceat(values, starts), np.float64) if len(values) else np.zeros(0)
