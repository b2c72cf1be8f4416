"""Where the default starts from: the observed range. The build then tries other methods
and keeps what helps the outputs.

The stage `clipping` takes over from here: it judges methods on held-out samples by what they do to the
network's outputs, and never clips outputs of the network or of bounded functions below what calibration saw.
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
    """The method that serves each network and tensor best, among those named."""

    methods: tuple[Annotated[str, CALIBRATORS], ...] = ("minmax", "mse", "percentile")
    """Methods that are tried, with their defaults; a later one must beat the earlier ones.
    "minmax" is always the first."""
    samples: Annotated[int, Range(2, None)] = 8
    """Held-out calibration samples that judge."""

    def check(self) -> Iterable[Fault]:
        if not self.methods or "auto" in self.methods:
            message = '"auto" chooses among other methods, at least one'
            yield Fault("methods", message, hint='methods = ["minmax", "mse"]', code="NF-RECIPE-042")

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        return fitted(statistics.lo, statistics.hi, grid)
