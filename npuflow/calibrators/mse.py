"""The range with the least mean squared error of quantisation, clipping included.

Sources: W. Sung, S. Shin, K. Hwang, "Resiliency of deep neural networks under quantization", 2015 (L2 minimisation);
ranges found by golden-section and coordinate search as in J. Choi et al. and M. Nagel et al., "A white paper on neural
network quantization", 2021. The error is integrated in closed form over evenly filled cells, not sampled at their middles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from npuflow.base.tables import Range
from npuflow.ir.contracts import CALIBRATORS, Calibrator, Grid, TensorStatistics, fitted

GOLDEN = (5**0.5 - 1) / 2


@CALIBRATORS.entry
@dataclass(frozen=True)
class Mse(Calibrator):
    """Least squares for the grid's own steps; both ends of a range are moved inwards."""

    bins: Annotated[int, Range(64, 65536)] = 2048   # cells are gathered into so many before the search
    coarse: Annotated[int, Range(4, 1000)] = 20     # candidates before the search closes in
    rounds: Annotated[int, Range(0, 10)] = 2        # of moving one end, then the other

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        lo, hi = fitted(statistics.lo, statistics.hi, grid)
        if hi - lo <= 0:
            return lo, hi
        loss = Loss(statistics, grid, self.bins)
        best = self._least(lambda a: loss(lo * a, hi * a))
        left, right = lo * best, hi * best
        if not grid.symmetric and lo < 0.0 < hi:
            for _ in range(self.rounds):
                left = lo * self._least(lambda a, end=right: loss(lo * a, end))  # type: ignore[misc]
                right = hi * self._least(lambda a, end=left: loss(end, hi * a))  # type: ignore[misc]
        return left, right

    def _least(self, loss: Callable[[float], float]) -> float:
        """The best share of the full range: on a coarse grid, then by golden section around its best point."""
        shares = np.linspace(0, 1, self.coarse + 1)[1:]
        found = [loss(float(share)) for share in shares]
        at = int(np.argmin(found))
        low, high = float(shares[max(at - 1, 0)]), float(shares[min(at + 1, len(shares) - 1)])
        best = (found[at], float(shares[at]))
        a, b = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        at_a, at_b = loss(a), loss(b)
        for _ in range(8):
            best = min(best, (at_a, a), (at_b, b))
            if at_a < at_b:
                high, b, at_b = b, a, at_a
                a = high - GOLDEN * (high - low)
                at_a = loss(a)
            else:
                low, a, at_a = a, b, at_b
                b = low + GOLDEN * (high - low)
                at_b = loss(b)
        return min(best, (at_a, a), (at_b, b))[1]


class Loss:
    """Summed squared error of quantising one tensor to a range.

    Within a bin values lie evenly, so with steps of s and n = round(t / s) the error up to t integrates to
    s^3 (n / 12 + (t / s - n)^3 / 3); where n is clamped to the grid's ends the same formula gives the clipping error.
    """

    def __init__(self, statistics: TensorStatistics, grid: Grid, bins: int) -> None:
        self.grid = grid
        lower, upper, counts = statistics.cells()
        lo, hi = statistics.lo, statistics.hi
        single = lower == upper
        self.points, self.weights = lower[single], counts[single]
        self.edges = np.linspace(lo, hi, bins + 1)
        width = (hi - lo) / bins
        self.density = statistics.histogram(bins, lo, hi, points=False) / width if width > 0 else np.zeros(bins)

    def __call__(self, lo: float, hi: float) -> float:
        step, first, last = self.codes(lo, hi)
        if step <= 0:
            return float("inf")
        ratio = self.edges / step
        nearest = np.clip(np.rint(ratio), first, last)
        integral = nearest / 12 + (ratio - nearest) ** 3 / 3
        spread = step**3 * float(self.density @ np.diff(integral))
        held = np.clip(np.rint(self.points / step), first, last) * step
        return spread + float(self.weights @ (self.points - held) ** 2)

    def codes(self, lo: float, hi: float) -> tuple[float, float, float]:
        """Step, and the first and last multiple of it that the grid has."""
        grid = self.grid
        if grid.symmetric:
            last = grid.levels // 2 - (0 if grid.narrow else 1) if grid.signed else grid.levels - 1
            step, first = hi / last, -last - 1 + int(grid.narrow) if grid.signed else 0
        else:
            step = (hi - lo) / (grid.levels - 1)
            first = int(np.rint(lo / step)) if step > 0 else 0
            last = first + grid.levels - 1
        if grid.power_of_two and step > 0:
            step = 2.0 ** np.ceil(np.log2(step) - 1e-6)
            if not grid.symmetric:
                first = int(np.rint(lo / step))
                last = first + grid.levels - 1
        return float(step), float(first), float(last)
