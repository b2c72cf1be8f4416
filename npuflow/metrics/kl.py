"""Divergence of the next token's probabilities from the float model's (Kullback-Leibler); needs no labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from npuflow.metrics import METRICS, Outputs, RowMetric
from npuflow.metrics._tokens import log_probabilities


@METRICS.entry
@dataclass(frozen=True)
class KullbackLeibler(RowMetric):
    """The mean, over all tokens that are fed, of sum p log(p / q): p the float model's probabilities of the
    next token, q the program's; in nats. `output` names the scores (default: the first). Lower is better."""

    needs_labels: ClassVar[bool] = False
    better: ClassVar[Literal["higher", "lower"]] = "lower"
    output: str = ""

    def row(self, outputs: Outputs, reference: Outputs, label: Any) -> list[float]:
        real = log_probabilities(reference, self.output)
        mine = log_probabilities(outputs, self.output)
        return [float(level) for level in (np.exp(real) * (real - mine)).sum(1)]

    def total(self, rows: Sequence[list[float]]) -> dict[str, float]:
        return {"kl": float(np.mean([level for row in rows for level in row]))}
