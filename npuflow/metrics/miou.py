"""Mean intersection over union of a segmentation, and the share of pixels that are right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError
from npuflow.base.tables import Range
from npuflow.metrics import METRICS, Metric, Outputs
from npuflow.metrics._ragged import judged_output


@METRICS.entry
@dataclass(frozen=True)
class Miou(Metric):
    """A label is the class of every pixel, [h, w]; pixels of class `ignore` do not count. The output
    (default: the first) has scores of classes along `axis` of a sample, or is a map of classes itself: then
    `classes` says how many there are. Classes that neither side has are left out of the mean."""

    classes: Annotated[int, Range(0, None)] = 0
    axis: int = 0
    ignore: int = 255
    output: str = ""

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        found = judged_output(outputs, self.output)
        count = self.classes or found.shape[1:][self.axis]
        shared, mine, theirs = (np.zeros(count, np.int64) for _ in range(3))
        for sample, label in zip(found, labels or [], strict=True):
            made, truth = self._map(sample), np.asarray(label)
            truth = truth.reshape(truth.shape[-2:]) if truth.ndim > 2 else truth
            if made.shape != truth.shape:
                raise DataError(
                    f"a label of shape {list(truth.shape)} does not fit the output's {list(made.shape)}",
                    hint="resize the labels to the output, or name another output",
                    code="NF-METRIC-021",
                )
            counts = truth != self.ignore
            a, b = made[counts].astype(np.int64), truth[counts].astype(np.int64)
            if b.size and not 0 <= int(b.min()) <= int(b.max()) < count:
                raise DataError(
                    f"labels from {int(b.min())} to {int(b.max())} are no classes of {count}",
                    hint="[evaluate.miou] ignore names the class of pixels that do not count",
                    code="NF-METRIC-022",
                )
            a = np.clip(a, 0, count - 1)
            shared += np.bincount(a[a == b], minlength=count)
            mine += np.bincount(a, minlength=count)
            theirs += np.bincount(b, minlength=count)
        union = mine + theirs - shared
        there = union > 0
        total = int(theirs.sum())
        return {
            "miou": float((shared[there] / union[there]).mean()) if there.any() else 0.0,
            "pixel_accuracy": int(shared.sum()) / total if total else 0.0,
        }

    def _map(self, sample: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.classes and sample.ndim <= 3 and sample.shape[self.axis] != self.classes:
            return np.rint(sample.reshape(sample.shape[-2:]))
        return sample.argmax(self.axis)
