"""The extrema that remain when every sample's outermost values are left out (top-k filtering per sample).

Source: Horizon's OpenExplorer toolchain, calibration_type "max" with max_percentile; 0.99995 and 0.9999 are
its usual values. Statistics keep a ladder of such values per sample, so the share must be one of them. Unlike
`percentile`, which looks at all samples as one heap, a sample that is large everywhere keeps its say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from npuflow.base.tables import Fault
from npuflow.calibrators import CALIBRATORS, TAILS, Calibrator, Grid, TensorStatistics, fitted


@CALIBRATORS.entry
@dataclass(frozen=True)
class MaxPercentile(Calibrator):
    """Largest over the samples of a sample's percentile."""

    percentile: float = 99.99             # 99, 99.5, 99.9, 99.95, 99.99, 99.995 or 99.999

    def check(self) -> Iterable[Fault]:
        if self._place() is None:
            kept = ", ".join(f"{100 * (1 - share):g}" for share in TAILS)
            yield Fault(
                "percentile", f"no statistics are kept for {self.percentile:g} %", hint=f"one of {kept}",
                code="NF-RECIPE-014",
            )

    def _place(self) -> int | None:
        return next(
            (i for i, share in enumerate(TAILS) if abs(100 * (1 - share) - self.percentile) < 1e-7), None
        )

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        tails, at = statistics.sample_tails, self._place()
        if not len(tails) or at is None:
            return 0.0, 0.0
        return fitted(float(tails[:, 0, at].min()), float(tails[:, 1, at].max()), grid)
