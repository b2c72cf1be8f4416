"""Analytical clipping for values that are normally distributed: a multiple of their standard deviation.

Source: R. Banner, Y. Nahshan, D. Soudry, "Post training 4-bit quantization of convolutional networks for
rapid-deployment", 2019 (ACIQ): alpha minimises clipping plus rounding error; half as many levels per side
where values have both signs. Arm China's Compass optimizer scales alpha by a factor gamma.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, exp, log2, pi, sqrt
from typing import Annotated

from npuflow.base.tables import Range
from npuflow.calibrators import CALIBRATORS, Calibrator, Grid, TensorStatistics, around_mean


@CALIBRATORS.entry
@dataclass(frozen=True)
class AciqGauss(Calibrator):
    """Best for a normal distribution of the observed mean and standard deviation."""

    gamma: Annotated[float, Range(0.1, 10)] = 1.0   # factor on the published multiple

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        one_sided = statistics.lo >= 0
        reach = self.gamma * statistics.std * alpha(log2(grid.levels) + one_sided)
        return around_mean(statistics, reach, grid)


def alpha(bits: float) -> float:
    """The clipping value, in standard deviations, of a range with 2^bits steps on both sides of the mean."""
    rounding = 1 / (3 * 4.0**bits)
    low, high = 0.0, 40.0
    # half the derivative of the error; it rises through its only zero
    for _ in range(80):
        middle = (low + high) / 2
        slope = middle * (erfc(middle / sqrt(2)) + rounding) - sqrt(2 / pi) * exp(-middle * middle / 2)
        low, high = (middle, high) if slope < 0 else (low, middle)
    return (low + high) / 2
