"""YOLOv5 and YOLOv7: centre and size by sigmoids, or boxes that the network has decoded.
The size is a square of at most four anchors.

Source: G. Jocher, "YOLOv5 by Ultralytics", 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuflow.heads import HEADS, Decoded, HeadNet, HeadTask, Shapes
from npuflow.heads import _cells as c
from npuflow.heads._anchored import AnchoredHead, placed
from npuflow.ir.types import Array


@HEADS.entry
@dataclass(frozen=True)
class Yolov5Head(AnchoredHead):
    """Heads before any sigmoid, the finest first; or one output [1, boxes, 5 + classes] with x, y, w, h in
    pixels and scores from 0 to 1. `anchors`: of every head, width and height of its anchors in pixels."""

    anchors: c.Anchors = (
        (10, 13, 16, 30, 33, 23), (30, 61, 62, 45, 59, 119), (116, 90, 156, 198, 373, 326),
    )

    def misfit(self, shapes: Shapes, size: tuple[int, int], classes: int) -> str:
        if len(shapes) != 1 or len(shapes[0]) != 3 or c.anchor_fault(self.anchors):
            return super().misfit(shapes, size, classes)
        _, count, width = shapes[0]
        if width < 6 or (classes and width != 5 + classes):
            return f"rows of {width} values, but {5 + classes if classes else 'at least 6'}"
        strides = [8 << k for k in range(len(self.anchors))]
        wanted = c.counts(c.strided(size, strides), c.per_cell(self.anchors))
        return "" if count == wanted else f"{count} rows, but {wanted} anchors at strides {strides}"

    def decode(self, net: HeadNet, task: HeadTask) -> Decoded:
        table = task.heads[0]
        if len(net.shape(table)) != 3:
            return super().decode(net, task)
        half = net.op("Mul", c.columns(net, table, 2, 4), net.constant(np.asarray(0.5)))
        boxes = c.corners(net, c.columns(net, table, 0, 2), half)
        return Decoded(boxes, c.confidences(net, table, sigmoid=False))

    def boxes(self, net: HeadNet, table: str, cell: Array, step: Array, size: Array) -> str:
        centre = placed(net, net.op("Sigmoid", c.columns(net, table, 0, 2)), 2.0, cell, step)
        share = net.op("Sigmoid", c.columns(net, table, 2, 4))
        half = net.op("Mul", net.op("Mul", share, share), net.constant(2.0 * size))
        return c.corners(net, centre, half)
