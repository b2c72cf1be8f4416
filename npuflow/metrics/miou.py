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
        count = self.classes or self._count(found.shape[1:])
        shared, mine, theirs = (np.zeros(count, np.int64) for _ in range(3))
        for number, (sample, label) in enumerate(zip(found, labels or [], strict=True), 1):
            made, truth = self._map(sample), _classes(label, number)
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

    def _count(self, shape: tuple[int, ...]) -> int:
        """How many classes a sample has scores of."""
        if not -len(shape) <= self.axis < len(shape):
            raise DataError(
                f"an output of shape {list(shape)} a sample has no scores along axis {self.axis}",
                hint="[evaluate.miou] output names another output, axis that of the classes; classes = N for "
                "an output that is a map of classes",
                code="NF-METRIC-028",
            )
        return shape[self.axis]

    def _map(self, sample: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.classes and sample.ndim <= 3 and self._count(sample.shape) != self.classes:
            if sample.ndim < 2 or sample.size != sample.shape[-1] * sample.shape[-2]:
                raise DataError(
                    f"an output of shape {list(sample.shape)} a sample has neither scores of {self.classes} "
                    "classes nor one class a pixel",
                    hint="[evaluate.miou] classes as the model has them, or 0 for those of the output; axis",
                    code="NF-METRIC-029",
                )
            return np.rint(sample.reshape(sample.shape[-2:]))
        self._count(sample.shape)
        return sample.argmax(self.axis)


def _classes(label: Any, number: int) -> npt.NDArray[Any]:
    """The map of classes that a label is; `number` is the sample's, for the error where it is none."""
    try:
        found = np.asarray(label)
    except ValueError:                   # rows of unequal lengths
        found = np.array("")
    if not found.ndim or found.dtype.kind not in "iufb" or not np.array_equal(found, np.rint(found)):
        raise DataError(
            "labels must be maps of classes",
            because=f"that of sample {number} of the evaluation is {str(label)[:60]}",
            hint="a whole number for every pixel, [h, w]: an array `label` beside the inputs in an .npz, or "
            "a list in a .jsonl",
            code="NF-METRIC-033",
        )
    return found.reshape(found.shape[-2:]) if found.ndim > 2 else found
