"""The default: the observed range, and what clearly helps the outputs where that is not enough.

The stage `clipping` takes over from here. Where the observed range misses the budget of [precision], it
judges methods on held-out samples by what they do to the network's outputs; it never clips outputs of the
network or of bounded functions below what calibration saw.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from npuflow.base.tables import Fault, Range
from npuflow.calibrators import CALIBRATORS, Calibrator, Grid, TensorStatistics, fitted


@CALIBRATORS.entry
@dataclass(frozen=True)
class Auto(Calibrator):
    """The observed range, or by need the method that serves the network and tensor best."""

    methods: tuple[Annotated[str, CALIBRATORS], ...] = ("minmax", "mse", "percentile")
    """Methods that are tried, with their defaults, where "minmax" misses the budget of [precision]: the one
    that gains most over it, if that is 2 dB on every quarter of the samples."""
    samples: Annotated[int, Range(2, None)] = 16
    """Held-out calibration samples that judge."""

    def check(self) -> Iterable[Fault]:
        if not self.methods or "auto" in self.methods:
            message = '"auto" chooses among other methods, at least one'
            yield Fault("methods", message, hint='methods = ["minmax", "mse"]', code="NF-RECIPE-042")

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        return fitted(statistics.lo, statistics.hi, grid)
