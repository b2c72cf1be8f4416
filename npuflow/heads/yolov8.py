"""YOLOv8 and its successors: no anchors, distances to the four sides; decoded by the network, or as
distributions over bins.

Source: G. Jocher, A. Chaurasia, J. Qiu, "Ultralytics YOLOv8", 2023; X. Li and others, "Generalized focal
loss", 2020 (the expectation over bins).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from npuflow.base.tables import Range
from npuflow.heads import HEADS, Decoded, Head, HeadNet, HeadTask, Shapes
from npuflow.heads import _cells as c


@HEADS.entry
@dataclass(frozen=True)
class Yolov8Head(Head):
    """One output [1, 4 + classes, boxes] with x, y, w, h in pixels and scores from 0 to 1; or heads [1, 4 *
    bins + classes, rows, columns] before softmax and sigmoid, one for each stride."""

    strides: tuple[int, ...] = (8, 16, 32)
    bins: Annotated[int, Range(1, 64)] = 16

    def misfit(self, shapes: Shapes, size: tuple[int, int], classes: int) -> str:
        at = c.strided(size, self.strides)
        if len(shapes) == 1 and len(shapes[0]) == 3:
            _, width, count = shapes[0]
            wanted = c.counts(at, (1,) * len(at))
            if width < 5 or (classes and width != 4 + classes):
                return f"{width} values a box, but {4 + classes if classes else 'at least 5'}"
            return "" if count == wanted else f"{count} boxes, but {wanted} cells at strides {self.strides}"
        width = self.width(shapes[0], at[0])
        if width <= 4 * self.bins or (classes and width != 4 * self.bins + classes):
            return f"{width} values a cell, but {4 * self.bins} and one for each class"
        return "" if c.head_sizes(shapes, (width,) * len(shapes)) == at else f"no heads of {at} cells"

    def width(self, shape: tuple[int, ...], at: tuple[int, int]) -> int:
        """Values of a cell."""
        return 0 if len(shape) != 4 else shape[3] if shape[1:3] == at else shape[1]

    def decode(self, net: HeadNet, task: HeadTask) -> Decoded:
        first = net.shape(task.heads[0])
        if len(first) == 3:
            return self.decoded(net, task.heads[0], first[1])
        at, ones = c.strided(task.size, self.strides), (1,) * len(self.strides)
        width, sides = self.width(first, at[0]), 4 * self.bins
        table = c.joined(net, [c.rows(net, head, width) for head in task.heads])
        count = net.shape(table)[1]
        reach = c.columns(net, table, 0, sides)
        if self.bins > 1:
            spread = net.op("Reshape", reach, [1, count * 4, self.bins])
            share = net.op("Softmax", spread, axis=2)
            weight = net.constant(np.arange(self.bins, dtype=np.float64)[:, None])
            reach = net.op("Reshape", net.op("MatMul", share, weight), [1, count, 4])
        step = c.per_anchor(c.steps(self.strides, ones), at)
        far = net.op("Mul", reach, net.constant(step[None]))
        middle = net.constant(((c.grids(at, ones) + 0.5) * step)[None])
        low = net.op("Sub", middle, c.columns(net, far, 0, 2))
        high = net.op("Add", c.columns(net, far, 2, 4), middle)
        scores = c.activated(net, "sigmoid", table, sides, width)
        return Decoded(net.op("Concat", low, high, axis=2), c.by_class(net, scores))

    def decoded(self, net: HeadNet, head: str, width: int) -> Decoded:
        centre, size = (net.op("Slice", head, [k], [k + 2], [1]) for k in (0, 2))
        half = net.op("Mul", size, net.constant(np.asarray(0.5)))
        boxes = net.op("Concat", net.op("Sub", centre, half), net.op("Add", centre, half), axis=1)
        scores = net.op("Slice", head, [4], [width], [1])
        return Decoded(net.op("Transpose", boxes, perm=[0, 2, 1]), scores)
