"""The power-of-two step with the least squared error, from the one that just does not overflow downwards.

Source: AMD's Vitis AI quantizer, method "min MSE" (five steps are tried), and its
merging of batches ("modal").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from npuflow.base.tables import Range
from npuflow.calibrators import CALIBRATORS, TAILS, Calibrator, Floats, Grid, TensorStatistics
from npuflow.calibrators._loss import Loss
from npuflow.calibrators._pow2 import exponents, modal, span


@CALIBRATORS.entry
@dataclass(frozen=True)
class Pow2Mse(Calibrator):
    """Judged on all values together, or by one vote per sample.

    A sample's vote takes its clipping error from the values that statistics keep of its tails, evenly spread
    between them: steps differ by factors of two, which that resolves.
    """

    candidates: Annotated[int, Range(1, 16)] = 5
    merge: Literal["all", "modal"] = "all"
    bins: Annotated[int, Range(64, 65536)] = 2048

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        lo, hi = statistics.lo, statistics.hi
        if lo == hi == 0:
            return 0.0, 0.0
        if self.merge == "modal":
            return span(lo, hi, modal(self._votes(statistics, grid)), grid)
        top = int(exponents(np.array([lo]), np.array([hi]), grid)[0])
        loss = Loss(statistics, grid, self.bins)
        spans = [span(lo, hi, top - i, grid) for i in range(self.candidates)]
        return min(spans, key=lambda one: loss(*one))

    def _votes(self, statistics: TensorStatistics, grid: Grid) -> Floats:
        """Each sample's best exponent."""
        low, high = statistics.sample_min.astype(np.float64), statistics.sample_max.astype(np.float64)
        tails = statistics.sample_tails.astype(np.float64)
        tops = exponents(low, high, grid)
        errors = []
        for i in range(self.candidates):
            ends = [span(a, b, int(top) - i, grid) for a, b, top in zip(low, high, tops, strict=True)]
            left, right = np.array([a for a, _ in ends]), np.array([b for _, b in ends])
            rounding = np.exp2(2 * (tops - i)) / 12
            clipping = beyond(tails[:, 1], high, right) + beyond(-tails[:, 0], -low, -left)
            errors.append(rounding + clipping)
        return np.asarray(tops - np.argmin(np.stack(errors), axis=0))


def beyond(tails: Floats, top: Floats, end: Floats) -> Floats:
    """Mean squared distance to `end` of what lies beyond it, of all values of each sample."""
    edges = np.concatenate([tails, top[:, None]], axis=1)
    shares = -np.diff(np.array([*TAILS, 0.0]))
    near = np.maximum(edges[:, :-1] - end[:, None], 0.0)
    far = np.maximum(edges[:, 1:] - end[:, None], 0.0)
    width = np.maximum(edges[:, 1:] - edges[:, :-1], 1e-300)
    reached = np.where(far > near, (far - near) / width, (far > 0).astype(np.float64))
    found = (shares * reached * (near * near + near * far + far * far) / 3).sum(axis=1)
    # More than the largest share is clipped: at least as bad as that share and more
    # of it at the last known value.
    return np.asarray(found + TAILS[0] * np.maximum(edges[:, 0] - end, 0.0) ** 2)
