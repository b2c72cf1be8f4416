"""Contracts of the smaller plug-ins: threshold methods, metrics, source formats; each registry scans its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from npuflow.base.registry import Registry

CALIBRATORS = Registry("calibrators", "npuflow.calibrators")
METRICS = Registry("metrics", "npuflow.metrics")
FRONTENDS = Registry("frontends", "npuflow.frontends")
STRATEGIES = Registry("strategies", "npuflow.strategies")


@dataclass(frozen=True)
class Grid:
    """The integers a threshold is for: `bits`, signedness and symmetry decide how many steps cover a range."""

    bits: int
    signed: bool
    symmetric: bool
    narrow: bool = False
    power_of_two: bool = False

    @property
    def levels(self) -> int:
        return (1 << self.bits) - int(self.narrow)


class TensorStatistics(Protocol):
    """What a threshold method may ask of one tensor's statistics (see DESIGN: exact, mergeable, range-free)."""

    lo: float
    hi: float
    count: int

    def histogram(self, bins: int, lo: float, hi: float) -> npt.NDArray[np.float64]:
        """Counts of `bins` equal bins over [lo, hi], derived from the stored counts; values outside are left out."""

    def quantile(self, fraction: float, absolute: bool = False) -> float: ...

    @property
    def sample_min(self) -> npt.NDArray[np.float32]: ...
    @property
    def sample_max(self) -> npt.NDArray[np.float32]: ...
    @property
    def mean(self) -> float: ...
    @property
    def std(self) -> float: ...


class Calibrator(Protocol):
    """A threshold method: function (statistics, grid, options) -> (lo, hi) in real units."""

    def __call__(self, statistics: TensorStatistics, grid: Grid, options: object) -> tuple[float, float]: ...


class Metric(Protocol):
    """An accuracy metric over stacked outputs (first axis: samples) and labels as the evaluation data give them."""

    def __call__(self, outputs: Mapping[str, npt.NDArray[Any]], labels: object, options: object) -> Mapping[str, float]: ...
