"""The clipping value with the least squared error, found by Newton's method on clipping plus rounding noise.

Source: C. Sakr et al., "Optimal clipping and magnitude-aware differentiation for improved quantization-aware
training", 2022 (OCTAV). Rounding noise is step^2 / 12 for every value that is neither clipped nor zero; as
published, what a moving end gains or loses of such values is not in the derivative. On an asymmetric grid
each end has the same condition, with the step of the whole range; both are iterated together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from npuflow.base.tables import Range
from npuflow.calibrators import CALIBRATORS, Calibrator, Floats, Grid, TensorStatistics, fitted
from npuflow.calibrators._exact import Rows, ratio, shrunk

ROUNDS = 20                               # of all rows of a weight
SETTLED = 1e-6                            # relative change at which the iteration ends


@CALIBRATORS.entry
@dataclass(frozen=True)
class Octav(Calibrator):
    """Closed-form steps over exact tail sums; no grid of candidates."""

    rounds: Annotated[int, Range(1, 1000)] = 40

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        moments = statistics.moments
        count, mass, _ = (float(x) for x in moments.total)
        if count - moments.zeros <= 0:
            return 0.0, 0.0
        unit = 1 / (12.0 * (grid.levels - 1) ** 2)      # noise per value of a range of width 1
        # magnitude of what is not zero
        mean = (mass - 2 * moments.under(0.0)[1]) / (count - moments.zeros)
        together = grid.symmetric and grid.signed
        left, right = self._settled(statistics, unit, mean, together)
        return fitted(-left, right, grid)

    def rows(self, rows: Floats, grid: Grid) -> Rows:
        """One threshold for the magnitudes of a row."""
        unit = 1 / (3.0 * (grid.levels - 1) ** 2)

        def share(part: Floats, lo: Floats, hi: Floats) -> Floats:
            sizes = np.abs(part)
            busy = (sizes > 0).sum(axis=1)
            ends = ratio(sizes.sum(axis=1), busy)
            for _ in range(ROUNDS):
                over = sizes > ends[:, None]
                count = over.sum(axis=1)
                ends = ratio((sizes * over).sum(axis=1), unit * (busy - count) + count)
            return np.minimum(ratio(ends, np.maximum(-lo, hi)), 1.0)

        return shrunk(rows, share)

    def _settled(
        self, statistics: TensorStatistics, unit: float, start: float, together: bool
    ) -> tuple[float, float]:
        moments = statistics.moments
        count, mass, _ = (float(x) for x in moments.total)
        ends = max(-statistics.lo, 0.0), max(statistics.hi, 0.0)
        left, right = (start, start) if together else (min(start, ends[0]), min(start, ends[1]))
        for _ in range(self.rounds):
            under, upto = moments.under(-left), moments.under(right)
            over = count - upto[0]
            inside = upto[0] - under[0] - moments.zeros
            before = left, right
            if together:
                new = _ratio(mass - upto[1] - under[1], 4 * unit * inside + over + under[0])
                left = right = min(new, max(ends))
                if abs(left - before[0]) <= SETTLED * left:
                    break
                continue
            # A step may leave the observed values, where nothing is clipped and nothing pulls back.
            left, right = (
                min(max(_ratio(-under[1] - unit * inside * right, unit * inside + under[0]), 0.0), ends[0]),
                min(max(_ratio(mass - upto[1] - unit * inside * left, unit * inside + over), 0.0), ends[1]),
            )
            if abs(left - before[0]) + abs(right - before[1]) <= SETTLED * (left + right):
                break
        return left, right


def _ratio(above: float, below: float) -> float:
    """Without values on its side an end is free: it goes to zero."""
    return above / below if below > 0 else 0.0
