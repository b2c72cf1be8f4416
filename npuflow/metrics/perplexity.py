"""Perplexity of text: how many tokens the network wavers between, on average, where the next one is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from npuflow.base.errors import DataError
from npuflow.metrics import METRICS, Outputs, RowMetric
from npuflow.metrics._tokens import log_probabilities, scored, step, wrong_label

MOST = 700.0                              # beyond it the exponential is no number


@METRICS.entry
@dataclass(frozen=True)
class Perplexity(RowMetric):
    """The exponential of the mean negative log-likelihood of the next token, each given those of the text
    before it (teacher forcing). The first token of a window is not scored. Labels come from
    `[evaluate] text`. `output` names the scores (default: the first). Lower is better."""

    better: ClassVar[Literal["higher", "lower"]] = "lower"
    output: str = ""

    def row(self, outputs: Outputs, reference: Outputs, label: Any) -> list[float]:
        following = step(label)
        if not isinstance(following, int | list):
            raise wrong_label("perplexity", "text", following)
        levels = log_probabilities(outputs, self.output)
        return [-float(row[token]) for row, token in scored(levels, following)]

    def total(self, rows: Sequence[list[float]]) -> dict[str, float]:
        known = [level for row in rows for level in row]
        if not known:
            raise DataError(
                "no token could be scored", because="of none the next one is known",
                hint="windows of two tokens or more", code="NF-METRIC-043",
            )
        return {"perplexity": float(np.exp(min(float(np.mean(known)), MOST)))}
