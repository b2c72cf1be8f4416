"""The range with the least mean squared error of quantisation, clipping included.

Sources: W. Sung, S. Shin, K. Hwang, "Resiliency of deep neural networks under quantization", 2015 (L2
minimisation); ranges found by golden-section and coordinate search as in J. Choi et al. and M. Nagel
et al., "A white paper on neural network quantization", 2021. The error is integrated in closed form
over evenly filled cells, not sampled at their middles. Where codes are many, rounding noise is step^2
/ 12 and a whole plane of candidate ends costs a few binary searches; only the neighbourhood of its
best point is then judged exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from npuflow.base.tables import Range
from npuflow.calibrators import CALIBRATORS, Calibrator, Floats, Grid, TensorStatistics, fitted
from npuflow.calibrators._exact import Rows, shrunk
from npuflow.calibrators._loss import Loss

GOLDEN = (5**0.5 - 1) / 2
# codes from which on rounding noise is taken as uniform in the first search
MANY = 128


@CALIBRATORS.entry
@dataclass(frozen=True)
class Mse(Calibrator):
    """Least squares for the grid's own steps; both ends of a range are moved inwards."""

    bins: Annotated[int, Range(64, 65536)] = 2048   # cells are gathered into so many before the search
    coarse: Annotated[int, Range(4, 1000)] = 20     # candidates before the search closes in
    rounds: Annotated[int, Range(0, 10)] = 2        # of changing one end, then the other

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        lo, hi = fitted(statistics.lo, statistics.hi, grid)
        if hi - lo <= 0:
            return lo, hi
        loss = Loss(statistics, grid, self.bins)
        both = not grid.symmetric and lo < 0.0 < hi
        shares = np.linspace(0, 1, self.coarse + 1)[1:]
        if grid.levels < MANY or grid.power_of_two:
            best = self._least(lambda a: loss(lo * a, hi * a), shares)
            left, right, near = lo * best, hi * best, shares
        else:
            left, right, near = _noise_floor(statistics, grid, lo, hi, both)
            if not both:
                scale = right / hi if hi > 0 else left / lo
                best = self._least(lambda a: loss(lo * a, hi * a), np.minimum(scale * near, 1.0))
                left, right = lo * best, hi * best
        for _ in range(self.rounds if both else 0):
            left = self._left(loss, lo, right, left / lo, near)
            right = self._right(loss, left, hi, right / hi, near)
        return left, right

    def rows(self, rows: Floats, grid: Grid) -> Rows:
        def share(part: Floats, lo: Floats, hi: Floats) -> Floats:
            coarse = np.broadcast_to(np.linspace(0.2, 1.0, 17)[:, None], (17, len(part)))
            best = _best_shares(part, lo, hi, coarse, grid)
            near = np.minimum(best + np.linspace(-0.04, 0.04, 9)[:, None], 1.0)
            return _best_shares(part, lo, hi, near, grid)

        return shrunk(rows, share)

    def _left(self, loss: Loss, lo: float, right: float, now: float, near: np.ndarray) -> float:
        return self._end(lambda share: loss(lo * share, right), now, near) * lo

    def _right(self, loss: Loss, left: float, hi: float, now: float, near: np.ndarray) -> float:
        return self._end(lambda share: loss(left, hi * share), now, near) * hi

    def _end(self, loss: Callable[[float], float], now: float, near: np.ndarray) -> float:
        """The best share for one end: everywhere after a coarse start, else around where it is."""
        return self._least(loss, near if len(near) == self.coarse else np.minimum(now * near, 1.0))

    def _least(self, loss: Callable[[float], float], shares: np.ndarray) -> float:
        """The best share of the full range: of those given, then by golden section
        around the best of them."""
        found = [loss(float(share)) for share in shares]
        at = int(np.argmin(found))
        low, high = float(shares[max(at - 1, 0)]), float(shares[min(at + 1, len(shares) - 1)])
        best = (found[at], float(shares[at]))
        a, b = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        at_a, at_b = loss(a), loss(b)
        for _ in range(8 if len(shares) >= self.coarse else 3):
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


def _best_shares(rows: Floats, lo: Floats, hi: Floats, shares: Floats, grid: Grid) -> Floats:
    """Per row the share (of those in its column) with the least squared error."""
    losses = np.stack([_losses(rows, lo * share, hi * share, grid) for share in shares])
    # Of equals the largest share: a row of few distinct values is not clipped for nothing.
    at = len(shares) - 1 - np.argmin(losses[::-1], axis=0)
    return np.asarray(np.take_along_axis(shares, at[None], axis=0)[0])


def _losses(rows: Floats, lo: Floats, hi: Floats, grid: Grid) -> Floats:
    """Summed squared error of every row."""
    first, last = grid.first, grid.last
    if grid.symmetric:
        step = np.maximum(hi / last, lo / first if first else 0.0)
    else:
        step = (hi - lo) / (last - first)
    step = np.where(step > 0, step, 1.0)[:, None]
    zero = 0.0 if grid.symmetric else np.clip(np.rint(first - lo / step[:, 0]), first, last)[:, None]
    held = np.rint(rows / step)
    np.clip(held, first - zero, last - zero, out=held)
    held *= step
    held -= rows
    return np.asarray(np.einsum("ij,ij->i", held, held))


def _noise_floor(
    statistics: TensorStatistics, grid: Grid, lo: float, hi: float, both: bool
) -> tuple[float, float, np.ndarray]:
    """The best ends if every value inside has rounding noise step^2 / 12, and factors to look around them."""
    moments = statistics.moments
    shares = np.geomspace(1 / 64, 1, 97)
    if both:
        left, right = lo * shares[:, None], hi * shares[None, :]
        step = (right - left) / (grid.levels - 1)
    else:
        left, right = lo * shares, hi * shares
        step = (right - left) / (grid.levels - 1)
    under, upto = moments.below(left), moments.below(right)
    inside = upto[0] - under[0] - moments.zeros
    total = moments.total.reshape(3, *[1] * (step.ndim))
    over = total - upto
    clipping = (
        under[2]
        - 2 * left * under[1]
        + left**2 * under[0]
        + over[2]
        - 2 * right * over[1]
        + right**2 * over[0]
    )
    at = np.unravel_index(int(np.argmin(step * step / 12 * inside + clipping)), step.shape)
    near = np.array([0.92, 0.96, 1.0, 1.04, 1.08])
    return float(left[at[0], 0] if both else left[at]), float(right[0, at[1]] if both else right[at]), near
