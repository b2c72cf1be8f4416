"""Threshold methods, one a file: statistics of a tensor become a clipping range.

Noun: `Calibrator`.
Public: `Calibrator`, `Grid`.
Does not know: networks, samples, other methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from npuflow.base.registry import Registry
from npuflow.base.tables import EntryConfig
from npuflow.calibrators._exact import TAILS as TAILS
from npuflow.calibrators._exact import Exact as Exact
from npuflow.calibrators._exact import Rows, extremes
from npuflow.calibrators._moments import Floats as Floats
from npuflow.calibrators._moments import PrefixSums as PrefixSums

CALIBRATORS = Registry("calibrators", "npuflow.calibrators")


@dataclass(frozen=True)
class Grid:
    """The integers a threshold is for: `bits`, signedness and symmetry decide how
    many steps cover a range."""

    bits: int
    signed: bool
    symmetric: bool
    narrow: bool = False
    power_of_two: bool = False

    @property
    def levels(self) -> int:
        return (1 << self.bits) - int(self.narrow)

    @property
    def first(self) -> int:
        """The lowest code."""
        return -(1 << (self.bits - 1)) + int(self.narrow) if self.signed else 0

    @property
    def last(self) -> int:
        """The highest code."""
        return (1 << (self.bits - 1)) - 1 if self.signed else self.levels - 1


class TensorStatistics(Protocol):
    """What a threshold method may ask of one tensor's statistics (see DESIGN: exact, mergeable, range-free).

    Infinities and NaNs take no part in anything but their own counts; `lo` and `hi` are finite.
    """

    @property
    def lo(self) -> float: ...
    @property
    def hi(self) -> float: ...
    @property
    def count(self) -> int: ...
    @property
    def mean(self) -> float: ...
    @property
    def std(self) -> float: ...
    @property
    def sample_min(self) -> npt.NDArray[np.float32]: ...
    @property
    def sample_max(self) -> npt.NDArray[np.float32]: ...
    @property
    def sample_tails(self) -> npt.NDArray[np.float32]:
        """[samples, 2, len(TAILS)]: the values that these shares of a sample lie below, and lie above."""

    @property
    def moments(self) -> PrefixSums:
        """Counts and power sums below any place."""

    def cells(self) -> tuple[Floats, Floats, Floats]:
        """Lower ends, upper ends and counts of the occupied cells in ascending order; an
        exact zero is a cell [0, 0]."""

    def histogram(
        self, bins: int, lo: float, hi: float, absolute: bool = False, points: bool = True
    ) -> Floats:
        """Counts of `bins` equal bins over [lo, hi], derived from the cells; values outside are left out.

        `points` False leaves out cells without width (exact zeros, the value that a clip saturates at).
        """

    def quantile(self, fraction: float, absolute: bool = False) -> float:
        """The value (or magnitude) that this fraction of the values does not exceed."""


class Calibrator(EntryConfig):
    """A threshold method. Its fields are its options in the recipe
    (`[calibrate.<name>]`); calling it gives (lo, hi).

    The range is in real units and contains zero; a symmetric grid gets (-t, t), or (0, t) if it is unsigned.
    """

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        raise NotImplementedError

    def rows(self, rows: Floats, grid: Grid) -> Rows:
        """Ranges of the rows of a matrix, each by itself and within its extrema: the channels of a weight.
        One by one; a method may override it with a computation on all rows at once."""
        lo, hi = extremes(rows)
        found = np.array([self(Exact(row), grid) for row in rows]).reshape(-1, 2)
        return np.maximum(lo, found[:, 0]), np.minimum(hi, found[:, 1])


def fitted(lo: float, hi: float, grid: Grid) -> tuple[float, float]:
    """A range made to suit the grid: it contains zero, and is symmetric where the grid is."""
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    if not grid.symmetric:
        return (lo, hi)
    top = max(-lo, hi)
    return (-top, top) if grid.signed else (0.0, hi)


def around_mean(statistics: TensorStatistics, reach: float, grid: Grid) -> tuple[float, float]:
    """So far to both sides of the mean, within the observed extrema, made to suit the grid."""
    lo, hi = max(statistics.lo, statistics.mean - reach), min(statistics.hi, statistics.mean + reach)
    return fitted(lo, hi, grid)
