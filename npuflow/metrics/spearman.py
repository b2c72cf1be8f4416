"""Rank correlation of the outputs, or of similarities between pairs of outputs, with given scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npuflow.base.errors import DataError
from npuflow.base.tables import FilePath
from npuflow.metrics import METRICS, Metric, Outputs
from npuflow.metrics._ragged import judged_output


@METRICS.entry
@dataclass(frozen=True)
class Spearman(Metric):
    """With `pairs`, an npz file, similarity is the dot product of the outputs of rows pairs[:, 0] and
    pairs[:, 1], and is compared with scores; `pair_arrays` are the two arrays' names. Without, each
    sample's one output with its label.
    """

    output: str = ""
    pairs: FilePath | None = None
    pair_arrays: tuple[str, str] = ("pairs", "scores")

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        from scipy.stats import spearmanr

        values = judged_output(outputs, self.output)
        flat = values.reshape(len(values), -1).astype(np.float64)
        if self.pairs is None:
            numbers = all(isinstance(label, int | float) for label in labels or [])
            if flat.shape[1] != 1 or labels is None or not numbers:
                raise DataError(
                    "spearman without pairs needs one number per sample, and a number as its label",
                    because=f"a sample has {flat.shape[1]} numbers, its label is {(labels or [None])[0]!r}",
                    hint='[evaluate.spearman] pairs = an .npz of pairs and scores, or output = "..."',
                    code="NF-METRIC-008",
                )
            return {"spearman": float(spearmanr(flat[:, 0], np.array(labels, np.float64))[0])}
        with np.load(self.pairs, allow_pickle=False) as file:
            rows, scores = (file[name] for name in self.pair_arrays)
        if rows.max() >= len(flat):
            raise DataError(
                f"pairs name row {rows.max()}, but only {len(flat)} samples were evaluated",
                code="NF-METRIC-009",
            )
        return {"spearman": float(spearmanr((flat[rows[:, 0]] * flat[rows[:, 1]]).sum(1), scores)[0])}
