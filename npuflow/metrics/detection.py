"""Boxes found: F1, precision and recall at a score, and average precision at an overlap, COCO style.

Detections are matched to the truth greedily, best score first over all samples; one truth
takes one detection. Average precision is the area under the precision envelope at every
recall step, averaged over classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import DataError
from npuflow.base.tables import Range
from npuflow.metrics import METRICS, Metric, Outputs

Floats = npt.NDArray[np.float64]
Share = Annotated[float, Range(0, 1)]
Found = tuple[Floats, Floats, npt.NDArray[np.int64]]   # boxes x1 y1 x2 y2, scores, classes; best score first


@METRICS.entry
@dataclass(frozen=True)
class Detection(Metric):
    """A label is a list of [x, y, width, height] or [x, y, width, height, class], in
    pixels of the model's input.

    `decoder`: "yolox" for raw heads [cells, 5 + classes] over `size`; "boxes" for rows
    x1, y1, x2, y2, score(, class).
    """

    decoder: Literal["yolox", "boxes"] = "yolox"
    size: tuple[int, int] = (416, 416)               # height, width of the model's input
    strides: tuple[int, ...] = (8, 16, 32)
    score: Share = 0.1                               # of F1, precision and recall
    lowest: Share = 0.01                             # detections below are not looked at
    nms: Share = 0.45
    overlap: Share = 0.5
    output: str = ""

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        raw = outputs[self.output or next(iter(outputs))]
        events: list[tuple[float, bool, int]] = []
        total: dict[int, int] = {}
        for sample, truth in zip(raw, labels or [], strict=True):
            boxes, kinds = _truth(truth)
            for kind in kinds.tolist():
                total[kind] = total.get(kind, 0) + 1
            events += _matched(self._decoded(sample.astype(np.float64)), boxes, kinds, self.overlap)
        events.sort(key=lambda event: -event[0])
        kept = [event for event in events if event[0] > self.score]
        hits, wanted = sum(event[1] for event in kept), sum(total.values())
        precision, recall = hits / len(kept) if kept else 0.0, hits / wanted if wanted else 0.0
        f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
        average = [
            _average(np.array([e[1] for e in events if e[2] == kind], bool), n)
            for kind, n in sorted(total.items())
        ]
        name = f"ap{round(100 * self.overlap)}"
        return {
            "f1": f1,
            "precision": precision,
            "recall": recall,
            name: float(np.mean(average)) if average else 0.0,
        }

    def _decoded(self, rows: Floats) -> Found:
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
                    "the output does not fit the yolox decoder", because=because, code="NF-METRIC-007",
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


def _truth(label: Any) -> tuple[Floats, npt.NDArray[np.int64]]:
    if not label:
        return np.zeros((0, 4)), np.zeros(0, np.int64)
    rows = np.array([[*row, 0][:5] for row in label], np.float64)
    return np.concatenate([rows[:, :2], rows[:, :2] + rows[:, 2:4]], 1), rows[:, 4].astype(np.int64)


def _matched(
    found: Found, truth: Floats, kinds: npt.NDArray[np.int64], least: float
) -> list[tuple[float, bool, int]]:
    """(score, hit, class) of every detection of one sample."""
    used: set[int] = set()
    events = []
    for box, score, kind in zip(*found, strict=True):
        share = np.where(kinds == kind, overlaps(box, truth), -1.0)
        best = int(share.argmax()) if share.size else -1
        hit = best >= 0 and share[best] >= least and best not in used
        if hit:
            used.add(best)
        events.append((float(score), bool(hit), int(kind)))
    return events


def _average(hits: npt.NDArray[np.bool_], wanted: int) -> float:
    """Area under the precision envelope."""
    if not hits.size:
        return 0.0
    right = np.cumsum(hits)
    recall, precision = right / wanted, right / np.arange(1, hits.size + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float((np.diff(recall, prepend=0.0) * envelope).sum())
