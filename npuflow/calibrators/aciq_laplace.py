"""Analytical clipping for values that follow a Laplace distribution: a multiple of
their mean absolute deviation.

Source: R. Banner, Y. Nahshan, D. Soudry, "Post training 4-bit quantization of convolutional networks for
rapid-deployment", 2019 (ACIQ), as in `aciq_gauss`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, log2
from typing import Annotated

from npuflow.base.tables import Range
from npuflow.calibrators import CALIBRATORS, Calibrator, Grid, TensorStatistics, around_mean


@CALIBRATORS.entry
@dataclass(frozen=True)
class AciqLaplace(Calibrator):
    """Best for a Laplace distribution of the observed mean and mean absolute deviation."""

    gamma: Annotated[float, Range(0.1, 10)] = 1.0   # factor on the published multiple

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        one_sided = statistics.lo >= 0
        reach = self.gamma * statistics.moments.deviation() * alpha(log2(grid.levels) + one_sided)
        return around_mean(statistics, reach, grid)


def alpha(bits: float) -> float:
    """The clipping value in units of the scale b: x e^x = 3 * 4^bits, that is
    Lambert's W of the right side."""
    wanted = log(3) + bits * log(4)                 # of x + log x
    x = max(wanted - log(max(wanted, 1.0)), exp(-2))
    for _ in range(50):
        x -= (x + log(x) - wanted) / (1 + 1 / x)
    return x
