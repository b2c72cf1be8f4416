"""Share of samples whose greatest output is a right class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npuflow.metrics import METRICS, Metric, Outputs
from npuflow.metrics._labels import accepted
from npuflow.metrics._ragged import judged_output


@METRICS.entry
@dataclass(frozen=True)
class Top1(Metric):
    """A label is a class index, or a list of those that count as right. `output` names the
    scores (default: the first)."""

    output: str = ""

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        rows = judged_output(outputs, self.output)
        flat = rows.reshape(len(rows), -1)
        truth = accepted(labels or [], flat.shape[1])
        right = [int(a) in t for a, t in zip(flat.argmax(1), truth, strict=True)]
        return {"top1": float(np.mean(right))}
