"""Arrays that are known in full: their statistics, and ranges of all rows of a matrix at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.calibrators._moments import Floats, PrefixSums

# shares of a sample beyond which statistics keep a value
TAILS = (0.01, 0.005, 0.001, 5e-4, 1e-4, 5e-5, 1e-5)
CHUNK = 1 << 21                           # elements that are judged at once

Rows = tuple[Floats, Floats]              # lower and upper end of every row


class Exact:
    """Statistics of one array as one sample: every distinct value is a cell without width."""

    def __init__(self, values: npt.ArrayLike) -> None:
        flat = np.asarray(values, np.float64).reshape(-1)
        self.values = np.sort(flat[np.isfinite(flat)])

    @property
    def lo(self) -> float:
        return float(self.values[0]) if self.values.size else 0.0

    @property
    def hi(self) -> float:
        return float(self.values[-1]) if self.values.size else 0.0

    @property
    def count(self) -> int:
        return self.values.size

    @property
    def mean(self) -> float:
        return float(self.values.mean()) if self.values.size else 0.0

    @property
    def std(self) -> float:
        return float(self.values.std()) if self.values.size else 0.0

    @property
    def sample_min(self) -> npt.NDArray[np.float32]:
        return np.array([self.lo], np.float32)

    @property
    def sample_max(self) -> npt.NDArray[np.float32]:
        return np.array([self.hi], np.float32)

    @property
    def sample_tails(self) -> npt.NDArray[np.float32]:
        ends = [[self.quantile(share) for share in TAILS], [self.quantile(1 - share) for share in TAILS]]
        return np.array([ends], np.float32)

    @cached_property
    def moments(self) -> PrefixSums:
        return PrefixSums(*self.cells())

    def cells(self) -> tuple[Floats, Floats, Floats]:
        found, counts = np.unique(self.values, return_counts=True)
        return found, found, counts.astype(np.float64)

    def histogram(
        self, bins: int, lo: float, hi: float, absolute: bool = False, points: bool = True
    ) -> Floats:
        if not points:
            return np.zeros(bins)
        values = np.abs(self.values) if absolute else self.values
        return np.histogram(values, bins, (lo, hi))[0].astype(np.float64)

    def quantile(self, fraction: float, absolute: bool = False) -> float:
        values = np.abs(self.values) if absolute else self.values
        if not values.size:
            return 0.0
        return float(np.quantile(values, min(max(fraction, 0.0), 1.0), method="inverted_cdf"))


def extremes(rows: Floats) -> Rows:
    """The extrema of every row, zero included."""
    return np.minimum(rows.min(axis=1, initial=0.0), 0.0), np.maximum(rows.max(axis=1, initial=0.0), 0.0)


def shrunk(rows: Floats, share: Callable[[Floats, Floats, Floats], Any]) -> Rows:
    """The extrema of every row times its share, which `share` says of some rows and their extrema."""
    lo, hi = extremes(rows)
    if not rows.size:
        return lo, hi
    step = max(1, CHUNK // rows.shape[1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        by = share(rows[part], lo[part], hi[part])
        lo[part], hi[part] = lo[part] * by, hi[part] * by
    return lo, hi


def ratio(above: Floats, below: Floats) -> Floats:
    """above / below; 1 where there is nothing to divide by."""
    return np.asarray(np.where(below > 0, above / np.where(below > 0, below, 1.0), 1.0))
