"""The range that holds a given share of the values: of magnitudes on a symmetric
grid, of each tail otherwise.

Source: J. L. McKinstry et al., "Discovering low-precision networks close to full-precision networks for
efficient embedded inference", 2018 (99.99 % of magnitudes, as in NVIDIA's pytorch-quantization).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from npuflow.base.tables import Range
from npuflow.calibrators import CALIBRATORS, Calibrator, Floats, Grid, TensorStatistics, fitted
from npuflow.calibrators._exact import Rows, ratio, shrunk


@CALIBRATORS.entry
@dataclass(frozen=True)
class Percentile(Calibrator):
    """Values beyond a percentile are clipped."""

    percentile: Annotated[float, Range(50, 100)] = 99.99

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        share = self.percentile / 100
        if grid.symmetric and grid.signed:
            top = statistics.quantile(share, absolute=True)
            return -top, top
        return fitted(statistics.quantile(1 - share), statistics.quantile(share), grid)

    def rows(self, rows: Floats, grid: Grid) -> Rows:
        def share(part: Floats, lo: Floats, hi: Floats) -> Floats:
            keep = np.quantile(np.abs(part), self.percentile / 100, axis=1, method="inverted_cdf")
            return ratio(keep, np.maximum(-lo, hi))

        return shrunk(rows, share)
