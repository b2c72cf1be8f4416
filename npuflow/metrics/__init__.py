"""Accuracy metrics, one a file: outputs and references become named figures.

Noun: `Metric`.
Public: `Metric`, `RowMetric`.
Does not know: networks, how outputs were computed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from npuflow.base.registry import Registry
from npuflow.base.tables import EntryConfig
from npuflow.metrics._ragged import alike as alike
from npuflow.metrics._ragged import is_ragged as is_ragged
from npuflow.metrics._ragged import output_there
from npuflow.metrics._ragged import stacked as stacked
from npuflow.metrics._ragged import unlike as unlike

METRICS = Registry("metrics", "npuflow.metrics")
Outputs = Mapping[str, npt.NDArray[np.generic]]


class Metric(EntryConfig):
    """An accuracy metric. Its fields are its options (`[evaluate.<name>]`); calling it gives named figures.

    `outputs`: by output name, first axis the samples; `reference`: the float model's, likewise;
    `labels`: what the evaluation data state per sample (None without labels). The first figure is the
    one to watch; higher is better, unless `better` says otherwise.
    """

    needs_labels: ClassVar[bool] = True
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    def ready(self, outputs: Collection[str]) -> None:
        """Asked before samples are run: a DataError for an option or a package with which the metric would
        fail behind them. `outputs`: the names of the model's."""
        output_there(outputs, getattr(self, "output", ""))

    def along(self, axes: Mapping[str, int | None]) -> Metric:
        """The metric for a model whose outputs have an answer for each step or pixel. `axes`: by output of a
        fixed shape, in order, the dimension along which the scores of one answer lie, counted from the end;
        None: a sample is one answer, or none."""
        return self

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        raise NotImplementedError


class RowMetric(Metric):
    """A metric that keeps a few numbers of each sample, and no outputs: those of a language model, a score
    for every token of its vocabulary, are too large to be kept of many runs."""

    def row(self, outputs: Outputs, reference: Outputs, label: Any) -> Any:
        """What is kept of one sample; its outputs with or without an axis of samples of 1."""
        raise NotImplementedError

    def total(self, rows: Sequence[Any]) -> dict[str, float]:
        """The figures of all samples."""
        raise NotImplementedError

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        count = len(next(iter(outputs.values())))
        one = ({n: array[i] for n, array in outputs.items()} for i in range(count))
        other = ({n: array[i] for n, array in reference.items()} for i in range(count))
        known = labels if labels is not None else [None] * count
        return self.total([self.row(*each) for each in zip(one, other, known, strict=True)])
