"""Average precision of boxes over overlaps from .50 to .95, as pycocotools computes it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuflow.base.errors import DataError
from npuflow.base.extras import needs
from npuflow.metrics import METRICS, Outputs
from npuflow.metrics._boxes import BoxMetric, truth_of
from npuflow.metrics._ragged import outputs_named


@METRICS.entry
@dataclass(frozen=True)
class Coco(BoxMetric):
    """Labels and decoders are those of `detection`. It needs the package pycocotools
    (`pip install 'npuflow[coco]'`). All boxes of all samples count; none is marked as a crowd."""

    def ready(self, outputs: Collection[str]) -> None:
        super().ready(outputs)
        _tools()

    def __call__(self, outputs: Outputs, reference: Outputs, labels: list[Any] | None) -> dict[str, float]:
        images_of, judge_of = _tools()
        truths: list[dict[str, Any]] = []
        rows: list[list[float]] = []
        raw = outputs[outputs_named(outputs, self.output)[0]]
        for image, (sample, label) in enumerate(zip(raw, labels or [], strict=True), 1):
            for corners, kind in zip(*truth_of(label, image), strict=True):
                x, y, w, h = _sized(corners)
                one = {"image_id": image, "category_id": int(kind), "bbox": [x, y, w, h], "area": w * h}
                truths.append({**one, "iscrowd": 0, "id": len(truths) + 1})
            for corners, score, kind in zip(*self.decoded(sample.astype(np.float64)), strict=True):
                rows.append([image, *_sized(corners), float(score), int(kind)])
        if not truths or not rows:
            return {"ap": 0.0, "ap50": 0.0, "ap75": 0.0}
        with contextlib.redirect_stdout(io.StringIO()):
            data = images_of()
            kinds = {int(one["category_id"]) for one in truths} | {int(row[-1]) for row in rows}
            data.dataset = {
                "images": [{"id": i + 1} for i in range(len(raw))],
                "annotations": truths,
                "categories": [{"id": kind} for kind in sorted(kinds)],
            }
            data.createIndex()
            judge = judge_of(data, data.loadRes(np.array(rows, np.float64)), "bbox")
            judge.evaluate()
            judge.accumulate()
            judge.summarize()
        return {name: max(float(judge.stats[i]), 0.0) for i, name in enumerate(("ap", "ap50", "ap75"))}


def _tools() -> tuple[Any, Any]:
    """The package's two classes, or the error that says how to get it."""
    with needs(
        'the metric "coco" needs the package pycocotools',
        kind=DataError,
        hint="pip install 'npuflow[coco]'",
        code="NF-METRIC-024",
    ):
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    return COCO, COCOeval


def _sized(corners: Any) -> list[float]:
    """[x, y, width, height] of a box's corners."""
    x1, y1, x2, y2 = (float(v) for v in corners)
    return [x1, y1, x2 - x1, y2 - y1]
