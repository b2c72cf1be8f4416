"""The objectives of [search]: closeness to the float network, and the task's metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuflow.compare.comparison import Comparison
from npuflow.ir.types import Array
from npuflow.metrics import Metric, Outputs, stacked
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.graph import build
from npuflow.tune.correct.error import outputs_of

Marks = Mapping[str, float]               # a metric's figures; the first one counts


@dataclass(frozen=True)
class Rating:
    """Means over the outputs: signal over noise in dB, and cosine, all samples together."""

    sqnr: float
    cosine: float

    def by(self, objective: str) -> float:
        return self.sqnr if objective == "sqnr" else self.cosine


def rate(
    candidate: Candidate, feeds: Sequence[Mapping[str, Array]], truth: Sequence[Sequence[Array]]
) -> Rating:
    """Quantise, run, compare. `truth`: the float network's outputs, output by output."""
    return rating(truth, outputs_of(build(candidate).graph, feeds))


def mark(
    outputs: Sequence[Sequence[Array]], truth: Outputs, names: Sequence[str], metric: Metric, labels: Any
) -> Marks:
    """What the metric says of a network's outputs. `truth`: the float network's, as `by_name` gives them."""
    return dict(metric(by_name(outputs, names), truth, labels))


def by_name(outputs: Sequence[Sequence[Array]], names: Sequence[str]) -> Outputs:
    """Outputs by their names in the float model, samples along the first axis."""
    return stacked([dict(zip(names, row, strict=True)) for row in zip(*outputs, strict=True)])


def rating(truth: Sequence[Sequence[Array]], made: Sequence[Sequence[Array]]) -> Rating:
    """An output that has another shape than it should counts as zeros."""
    sqnr, cosine = [], []
    for real, found in zip(truth, made, strict=True):
        same = [y if y.shape == x.shape else np.zeros_like(x) for x, y in zip(real, found, strict=True)]
        a, b = (np.concatenate([x.reshape(-1) for x in part]).astype(np.float64) for part in (real, same))
        whole = Comparison()
        whole.add(a, b)
        sqnr.append(whole.decibels)
        cosine.append(whole.cosine)
    return Rating(float(np.mean(sqnr)), float(np.mean(cosine))) if sqnr else Rating(0.0, 1.0)
