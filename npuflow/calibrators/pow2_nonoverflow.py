"""The smallest power-of-two step with which nothing overflows.

Source: AMD's Vitis AI quantizer, method "nonoverflow", and the merging of its batches ("modal": the step that
most batches ask for; here of samples).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from npuflow.calibrators import CALIBRATORS, Calibrator, Grid, TensorStatistics
from npuflow.calibrators._pow2 import exponents, modal, span


@CALIBRATORS.entry
@dataclass(frozen=True)
class Pow2Nonoverflow(Calibrator):
    """Steps are powers of two also on targets that could do otherwise."""

    merge: Literal["all", "modal", "median"] = "all"   # all samples at once, or one vote per sample

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        if statistics.lo == statistics.hi == 0:
            return 0.0, 0.0
        if self.merge == "all":
            ends = np.array([statistics.lo]), np.array([statistics.hi])
        else:
            ends = statistics.sample_min.astype(np.float64), statistics.sample_max.astype(np.float64)
        votes = exponents(*ends, grid)
        chosen = modal(votes) if self.merge == "modal" else int(np.ceil(np.median(votes)))
        return span(statistics.lo, statistics.hi, chosen, grid)
