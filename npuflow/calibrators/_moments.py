"""Counts and power sums of a tensor's values below any place: what closed-form
threshold methods are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class PrefixSums:
    """Prefix sums over ascending, disjoint cells; inside a cell values lie evenly.

    A question costs a binary search, so hundreds of candidate ranges are judged in the
    time of one pass over the cells.
    """

    def __init__(self, lower: Floats, upper: Floats, counts: Floats) -> None:
        self.lower, self.upper, self.counts = lower, upper, counts
        self.width = upper - lower
        first = counts * (lower + upper) / 2
        second = counts * (lower * lower + lower * upper + upper * upper) / 3
        zero = np.zeros((3, 1))
        self.prefix = np.concatenate([zero, np.cumsum(np.stack([counts, first, second]), axis=1)], axis=1)
        self.zeros = float(counts[(lower == 0) & (upper == 0)].sum())

    def under(self, place: float) -> tuple[float, float, float]:
        """The same as `below` of one place, without the costs of arrays."""
        if not self.counts.size:
            return 0.0, 0.0, 0.0
        at = int(self.lower.searchsorted(place))
        last = max(at - 1, 0)
        near, width = float(self.lower[last]), float(self.width[last])
        far = min(float(self.upper[last]), place)
        share = min(max((far - near) / width, 0.0), 1.0) if width > 0 else 1.0
        part = share * float(self.counts[last]) if at else 0.0
        count, mass, square = self.prefix[:, last].tolist()
        return (
            count + part,
            mass + part * (near + far) / 2,
            square + part * (near * near + near * far + far * far) / 3,
        )

    @property
    def total(self) -> Floats:
        """Count, sum and sum of squares of everything."""
        return np.asarray(self.prefix[:, -1])

    def below(self, place: Any) -> Floats:
        """[3, ...]: count, sum and sum of squares of the values below (a value at
        the place itself is not)."""
        place = np.asarray(place, np.float64)
        if not self.counts.size:
            return np.zeros((3, *place.shape))
        at = np.searchsorted(self.lower, place, side="left")
        last = np.maximum(at - 1, 0)                 # the cell that the place may fall into
        near, far = self.lower[last], np.minimum(self.upper[last], place)
        width = self.width[last]
        share = np.where(width > 0, np.clip((far - near) / np.where(width > 0, width, 1.0), 0.0, 1.0), 1.0)
        part = share * self.counts[last] * (at > 0)
        inside = np.stack([part, part * (near + far) / 2, part * (near * near + near * far + far * far) / 3])
        return np.asarray(self.prefix[:, last] + inside)

    def clipped(self, lo: Any, hi: Any) -> Floats:
        """Summed squared distance of what lies outside [lo, hi] to its nearer end."""
        lo, hi = np.asarray(lo, np.float64), np.asarray(hi, np.float64)
        under, over = self.below(lo), self.total.reshape(3, *[1] * hi.ndim) - self.below(hi)
        left = under[2] - 2 * lo * under[1] + lo * lo * under[0]
        right = over[2] - 2 * hi * over[1] + hi * hi * over[0]
        return np.asarray(np.maximum(left, 0.0) + np.maximum(right, 0.0))

    def deviation(self) -> float:
        """Mean absolute deviation from the mean."""
        count, mass, _ = self.total
        if count <= 0:
            return 0.0
        mean = mass / count
        under = self.below(mean)
        return float((mass - under[1] - mean * (count - under[0]) + mean * under[0] - under[1]) / count)
