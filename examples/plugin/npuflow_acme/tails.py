"""The range that leaves a share of the values out at each end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from npuflow.base.tables import Range
from npuflow.calibrators import CALIBRATORS, Calibrator, Grid, TensorStatistics, fitted


@CALIBRATORS.entry
@dataclass(frozen=True)
class AcmeTails(Calibrator):
    """[quantile of `share`, quantile of 1 - `share`]; its options are [calibrate.acme_tails]."""

    share: Annotated[float, Range(0.0, 0.4)] = 0.0005

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        lo, hi = statistics.quantile(self.share), statistics.quantile(1.0 - self.share)
        return fitted(max(lo, statistics.lo), min(hi, statistics.hi), grid)
