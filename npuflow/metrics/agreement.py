"""Share of samples where the greatest output is the float model's; needs no labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from npuflow.ir.contracts import METRICS, Metric, Outputs


@METRICS.entry
@dataclass(frozen=True)
class Agreement(Metric):
    """`output` names the scores (default: the first)."""

    needs_labels: ClassVar[bool] = False
    output: str = ""

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        name = self.output or next(iter(outputs))
        mine, theirs = (o[name].reshape(len(o[name]), -1).argmax(1) for o in (outputs, reference))
        return {"agreement": float(np.mean(mine == theirs))}
