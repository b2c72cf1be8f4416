"""Signal to quantisation noise of the outputs, in decibels, against the float model; needs no labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from npuflow.ir.noise import EXACT, SignalToNoise
from npuflow.metrics import METRICS, Metric, Outputs
from npuflow.metrics._ragged import alike, outputs_named


@METRICS.entry
@dataclass(frozen=True)
class Sqnr(Metric):
    """Over all samples of one output, or of all outputs together (`output` empty). Equal outputs give 200 dB;
    samples whose shape is another than the float model's are left out."""

    needs_labels: ClassVar[bool] = False
    output: str = ""

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        sums = SignalToNoise()
        compared = 0
        for name in outputs_named(reference, self.output):
            for real, found in alike(reference[name], outputs[name]):
                compared += 1
                sums.add(real, found)
        return {"sqnr_db": sums.decibels if compared else -EXACT}
