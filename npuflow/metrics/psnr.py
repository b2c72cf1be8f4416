"""Peak signal to noise ratio of images, in decibels, against the float model's; needs no labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from npuflow.base.tables import Range
from npuflow.ir.noise import decibels
from npuflow.metrics import METRICS, Metric, Outputs
from npuflow.metrics._ragged import each, judged_name


@METRICS.entry
@dataclass(frozen=True)
class Psnr(Metric):
    """The mean over samples of one output (default: the first). `peak` is the largest value that a pixel can
    have (1 or 255); 0 takes the span of the float model's image. Equal images give 100 dB."""

    needs_labels: ClassVar[bool] = False
    peak: Annotated[float, Range(0, None)] = 0.0
    output: str = ""

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        name = judged_name(outputs, self.output)
        found = []
        for real, mine in each(reference[name], outputs[name]):
            truth = real.astype(np.float64)
            error = float(((truth - mine.astype(np.float64)) ** 2).mean())
            peak = self.peak or float(np.ptp(truth))
            found.append(min(decibels(peak**2, error), 100.0) if peak else 100.0)
        return {"psnr_db": float(np.mean(found)) if found else 0.0}
