"""Share of samples with a right class among the k greatest outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from npuflow.base.tables import Range
from npuflow.metrics import METRICS, Metric, Outputs
from npuflow.metrics._labels import accepted
from npuflow.metrics._ragged import judged_output


@METRICS.entry
@dataclass(frozen=True)
class Topk(Metric):
    """Labels as for top1. Among equal scores the lower class index comes first."""

    k: Annotated[int, Range(1, None)] = 5
    output: str = ""

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        rows = judged_output(outputs, self.output)
        flat = rows.reshape(len(rows), -1).astype(np.float64)
        best = np.argsort(-flat, axis=1, kind="stable")[:, : self.k]
        truth = accepted(labels or [], flat.shape[1])
        right = [bool(set(row.tolist()) & set(t)) for row, t in zip(best, truth, strict=True)]
        return {f"top{self.k}": float(np.mean(right))}
