"""Share of samples whose greatest output is a right class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npuflow.ir.contracts import METRICS, Metric, Outputs


@METRICS.entry
@dataclass(frozen=True)
class Top1(Metric):
    """A label is a class index, or a list of those that count as right. `output` names the scores (default: the first)."""

    output: str = ""

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        scores = outputs[self.output or next(iter(outputs))]
        answers = scores.reshape(len(scores), -1).argmax(1)
        right = [int(a) in (t if isinstance(t, list) else (t,)) for a, t in zip(answers, labels or [], strict=True)]
        return {"top1": float(np.mean(right))}
