"""Boxes in a network's output and in labels: what detection metrics share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError
from npuflow.base.tables import Range
from npuflow.metrics import Metric

Floats = npt.NDArray[np.float64]
Share = Annotated[float, Range(0, 1)]
Found = tuple[Floats, Floats, npt.NDArray[np.int64]]  # boxes x1 y1 x2 y2, scores, classes; best score first


@dataclass(frozen=True)
class BoxMetric(Metric):
    """A label is a list of [x, y, width, height] or [x, y, width, height, class], in
    pixels of the model's input.

    `decoder`: "yolox" for raw heads [cells, 5 + classes] over `size`; "boxes" for rows
    x1, y1, x2, y2, score(, class).
    """

    decoder: Literal["yolox", "boxes"] = "yolox"
    size: tuple[int, int] = (416, 416)  # height, width of the model's input
    strides: tuple[int, ...] = (8, 16, 32)
    lowest: Share = 0.01  # detections below are not looked at
    nms: Share = 0.45
    output: str = ""

    def decoded(self, rows: Floats) -> Found:
        rows = np.atleast_2d(rows)        # one box a sample: stacked like numbers of one row
        least = 5 if self.decoder == "boxes" else 6
        if rows.ndim != 2 or rows.shape[1] < least:
            what = "x1, y1, x2, y2, score(, class)" if least == 5 else "x, y, width, height, object, classes"
            raise DataError(
                f'the output does not fit the decoder "{self.decoder}"',
                because=f"a sample has the shape {list(rows.shape)}; the decoder takes rows of {what}",
                hint='another output = "...", or decoder = "boxes" for boxes that the program decodes',
                code="NF-METRIC-011",
            )
        if self.decoder == "boxes":
            keep = rows[:, 4] > self.lowest
            kinds = (
                rows[keep, 5].astype(np.int64) if rows.shape[1] > 5 else np.zeros(int(keep.sum()), np.int64)
            )
            boxes, scores = rows[keep, :4], rows[keep, 4]
        else:
            cells = np.array(list(self._cells()), np.float64)
            if len(cells) != len(rows):
                because = f"{len(rows)} rows, but {len(cells)} cells in {self.size} at strides {self.strides}"
                raise DataError(
                    "the output does not fit the yolox decoder",
                    because=because,
                    hint='size = [height, width] of the input, strides; decoder = "boxes" for decoded boxes',
                    code="NF-METRIC-007",
                )
            x, y, stride = cells.T
            classes = rows[:, 4:5] * rows[:, 5:]
            scores_all = classes.max(1)
            keep = scores_all > self.lowest
            kinds, scores = classes[keep].argmax(1), scores_all[keep]
            centre = (rows[keep, :2] + np.stack([x, y], 1)[keep]) * stride[keep, None]
            half = np.exp(np.minimum(rows[keep, 2:4], 20.0)) * stride[keep, None] / 2
            limit = np.array([self.size[1], self.size[0]] * 2, np.float64)
            boxes = np.clip(np.concatenate([centre - half, centre + half], 1), 0, limit)
        return self._suppressed(boxes, scores, kinds)

    def _cells(self) -> Iterator[tuple[int, int, int]]:
        for stride in self.strides:
            for y in range(self.size[0] // stride):
                yield from ((x, y, stride) for x in range(self.size[1] // stride))

    def _suppressed(self, boxes: Floats, scores: Floats, kinds: npt.NDArray[np.int64]) -> Found:
        """Greedy suppression of boxes of one class that overlap a better one."""
        order, chosen = np.argsort(-scores, kind="stable"), []
        while len(order):
            best, rest = order[0], order[1:]
            chosen.append(int(best))
            order = rest[(overlaps(boxes[best], boxes[rest]) <= self.nms) | (kinds[rest] != kinds[best])]
        return boxes[chosen], scores[chosen], kinds[chosen]


def overlaps(box: Floats, boxes: Floats) -> Floats:
    """Intersection over union of one box with many."""
    width = np.clip(np.minimum(box[2], boxes[:, 2]) - np.maximum(box[0], boxes[:, 0]), 0, None)
    height = np.clip(np.minimum(box[3], boxes[:, 3]) - np.maximum(box[1], boxes[:, 1]), 0, None)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    shared = width * height
    return np.asarray(shared / ((box[2] - box[0]) * (box[3] - box[1]) + area - shared + 1e-9))


def truth_of(label: Any, number: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Boxes and classes of a label; `number` is the sample's, for the error where it has another form."""
    label = label.tolist() if isinstance(label, np.ndarray) else label
    rows_there = isinstance(label, list | tuple) and all(isinstance(row, list | tuple) for row in label)
    if not rows_there or not all(len(row) in (4, 5) and all(map(_number, row)) for row in label):
        raise DataError(
            "labels must be lists of boxes",
            because=f"that of sample {number} of the evaluation is {str(label)[:80]}",
            hint="[[x, y, width, height, class], ...] a sample, or labels = a file of COCO annotations",
            code="NF-METRIC-012",
        )
    if not label:
        return np.zeros((0, 4)), np.zeros(0, np.int64)
    rows = np.array([[*row, 0][:5] for row in label], np.float64)
    return np.concatenate([rows[:, :2], rows[:, :2] + rows[:, 2:4]], 1), rows[:, 4].astype(np.int64)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
