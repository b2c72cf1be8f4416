"""Boxes found: F1, precision and recall at a score, and average precision at an overlap, COCO style.

Detections are matched to the truth greedily, best score first over all samples; one truth
takes one detection. Average precision is the area under the precision envelope at every
recall step, averaged over classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.metrics import METRICS, Outputs
from npuflow.metrics._boxes import BoxMetric, Floats, Found, Share, overlaps, truth_of
from npuflow.metrics._ragged import outputs_named


@METRICS.entry
@dataclass(frozen=True)
class Detection(BoxMetric):
    """`score` holds for F1, precision and recall; `overlap` for all figures."""

    score: Share = 0.1
    overlap: Share = 0.5

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        raw = outputs[outputs_named(outputs, self.output)[0]]
        events: list[tuple[float, bool, int]] = []
        total: dict[int, int] = {}
        for number, (sample, truth) in enumerate(zip(raw, labels or [], strict=True), 1):
            boxes, kinds = truth_of(truth, number)
            for kind in kinds.tolist():
                total[kind] = total.get(kind, 0) + 1
            events += _matched(self.decoded(sample.astype(np.float64)), boxes, kinds, self.overlap)
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
