"""The squared error of quantising a tensor to a range, integrated in closed form over its statistics."""

from __future__ import annotations

import numpy as np

from npuflow.calibrators import Grid, TensorStatistics


def steps(lo: float, hi: float, grid: Grid) -> tuple[float, float, float]:
    """The step of a range on a grid, and the first and last multiple of it that the grid has."""
    if grid.symmetric:
        step, first, last = hi / grid.last, grid.first, grid.last
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


class Loss:
    """Summed squared error of quantising one tensor to a range.

    Within a bin values lie evenly, so with steps of s and n = round(t / s) the error up to t
    integrates to s^3 (n / 12 + (t / s - n)^3 / 3); where n is clamped to the grid's ends the same
    formula gives the clipping error.
    """

    def __init__(self, statistics: TensorStatistics, grid: Grid, bins: int) -> None:
        self.grid = grid
        lower, upper, counts = statistics.cells()
        lo, hi = statistics.lo, statistics.hi
        single = lower == upper
        self.points, self.weights = lower[single], counts[single]
        self.edges = np.linspace(lo, hi, bins + 1)
        width = (hi - lo) / bins
        self.density = (
            statistics.histogram(bins, lo, hi, points=False) / width if width > 0 else np.zeros(bins)
        )

    def __call__(self, lo: float, hi: float) -> float:
        return self.of(*steps(lo, hi, self.grid))

    def of(self, step: float, first: float, last: float) -> float:
        """The loss of multiples first..last of a step."""
        if step <= 0:
            return float("inf")
        ratio = self.edges / step
        nearest = np.rint(ratio)
        np.minimum(np.maximum(nearest, first, out=nearest), last, out=nearest)
        ratio -= nearest
        integral = nearest / 12 + ratio * ratio * ratio / 3
        spread = step**3 * float(self.density @ (integral[1:] - integral[:-1]))
        held = np.clip(np.rint(self.points / step), first, last) * step
        return spread + float(self.weights @ (self.points - held) ** 2)
