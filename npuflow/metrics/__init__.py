"""Accuracy metrics, one a file: outputs and references become named figures.

Noun: `Metric`.
Public: `Metric`.
Does not know: networks, how outputs were computed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

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
    one to watch; higher is better.
    """

    needs_labels: ClassVar[bool] = True

    def ready(self, outputs: Collection[str]) -> None:
        """Asked before samples are run: a DataError for an option or a package with which the metric would
        fail behind them. `outputs`: the names of the model's."""
        output_there(outputs, getattr(self, "output", ""))

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        raise NotImplementedError
