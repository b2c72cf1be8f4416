"""Share of answers, the places of the greatest scores, that are the float model's; needs no labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from npuflow.base.errors import DataError
from npuflow.ir.types import Array
from npuflow.metrics import METRICS, Metric, Outputs
from npuflow.metrics._ragged import is_ragged, judged_name


@METRICS.entry
@dataclass(frozen=True)
class Agreement(Metric):
    """`output` names the scores (default: the first whose shape does not depend on the data)."""

    needs_labels: ClassVar[bool] = False
    output: str = ""
    axis: int | None = None
    """Dimension of a sample's output along which the scores of one answer lie, where it has an answer for
    each step or pixel. Default: that of the Softmax behind it; without one a sample is one row of scores."""

    def along(self, axes: Mapping[str, int | None]) -> Agreement:
        name = self.output or next(iter(axes), "")
        return self if self.axis is not None else replace(self, axis=axes.get(name))

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        name = judged_name(outputs, self.output)
        if is_ragged(outputs[name]):
            return {
                "agreement": float(
                    np.mean([_same(*pair) for pair in zip(outputs[name], reference[name], strict=True)])
                )
            }
        mine, theirs = (self._answers(o[name]) for o in (outputs, reference))
        return {"agreement": float(np.mean(mine == theirs))}

    def _answers(self, scores: Array) -> Array:
        """Of [samples, ...]: the place of the greatest score of each sample, or of each of its rows."""
        if self.axis is None:
            return np.asarray(scores.reshape(len(scores), -1).argmax(1))
        rank = scores.ndim - 1
        if not -rank <= self.axis < rank:
            raise DataError(
                f"the output has no dimension {self.axis}: a sample is {list(scores.shape[1:])}",
                hint=f"axis = {-rank} to {rank - 1}" if rank else "leave axis out", code="NF-METRIC-046",
            )
        return np.asarray(scores.argmax(self.axis + (self.axis >= 0)))


def _same(mine: Array, theirs: Array) -> bool:
    """Of an output whose shape depends on the data."""
    return mine.shape == theirs.shape and (not mine.size or int(mine.argmax()) == int(theirs.argmax()))
