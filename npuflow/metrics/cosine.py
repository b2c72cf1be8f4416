"""Cosine of the angle between the outputs and the float model's, averaged over samples; needs no labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from npuflow.metrics import METRICS, Metric, Outputs
from npuflow.metrics._ragged import each, outputs_named


@METRICS.entry
@dataclass(frozen=True)
class Cosine(Metric):
    """Of one output, or of all outputs (`output` empty), for embeddings and the like. `cosine_worst` is the
    smallest of any sample; samples whose shape is another than the float model's are left out."""

    needs_labels: ClassVar[bool] = False
    output: str = ""

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        found = []
        for name in outputs_named(reference, self.output):
            for real, mine in each(reference[name], outputs[name]):
                a, b = real.astype(np.float64).reshape(-1), mine.astype(np.float64).reshape(-1)
                length = float(np.linalg.norm(a) * np.linalg.norm(b))
                found.append(float(a @ b) / length if length else float(np.array_equal(a, b)))
        if not found:
            return {"cosine": -1.0, "cosine_worst": -1.0}
        return {"cosine": float(np.mean(found)), "cosine_worst": min(found)}
