"""RetinaNet: offsets to anchors of several scales and ratios on a pyramid, a sigmoid for each class.

Source: T. Lin and others, "Focal loss for dense object detection", 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from npuflow.base.tables import Range
from npuflow.heads import HEADS, Decoded, Head, HeadNet, HeadTask, Shapes
from npuflow.heads import _cells as c
from npuflow.heads._priors import moved
from npuflow.ir.types import Array

Positive = Annotated[float, Range(1e-6, 1e6)]


@HEADS.entry
@dataclass(frozen=True)
class RetinanetHead(Head):
    """Offsets [1, boxes, 4] and scores [1, boxes, classes]; or the offsets of all levels [1, anchors * 4,
    rows, columns], then their scores [1, anchors * classes, rows, columns]. Anchors of a cell: ratio by
    ratio, each in all scales."""

    strides: tuple[int, ...] = (8, 16, 32, 64, 128)
    base: Positive = 4.0
    """Side of an anchor of scale 1 in strides."""
    scales: tuple[Positive, ...] = (1.0, 2 ** (1 / 3), 2 ** (2 / 3))
    ratios: tuple[Positive, ...] = (0.5, 1.0, 2.0)
    """Height to width."""
    offset: Annotated[float, Range(0, 1)] = 0.5
    """Where in its cell an anchor's centre is."""
    variances: tuple[Positive, Positive, Positive, Positive] = (1.0, 1.0, 1.0, 1.0)
    sigmoid: bool = True
    """Scores do not come through a sigmoid yet."""

    every_class = True

    def misfit(self, shapes: Shapes, size: tuple[int, int], classes: int) -> str:
        at, count = c.strided(size, self.strides), len(self.scales) * len(self.ratios)
        if len(shapes) == 2 and all(len(shape) == 3 for shape in shapes):
            wanted = c.counts(at, (count,) * len(at))
            if shapes[0][1:] != (wanted, 4) or shapes[1][1] != wanted:
                return f"{shapes[0]} and {shapes[1]} are no offsets and scores of {wanted} anchors"
            found = shapes[1][2]
        else:
            half = len(self.strides)
            if len(shapes) != 2 * half or any(len(shape) != 4 for shape in shapes):
                return f"two outputs [1, boxes, values], or offsets and scores of {half} levels, are needed"
            found = self.width(shapes[half], at[0]) // count
            widths = [4 * count] * half + [found * count] * half
            if not found or c.head_sizes(shapes, widths) != [*at, *at]:
                return f"the outputs are no offsets and scores of {at} cells with {count} anchors"
        return f"{found} classes in the outputs, not {classes}" if classes not in (0, found) else ""

    def width(self, shape: tuple[int, ...], at: tuple[int, int]) -> int:
        """Values of a cell."""
        return shape[3] if shape[1:3] == at else shape[1]

    def decode(self, net: HeadNet, task: HeadTask) -> Decoded:
        at, count = c.strided(task.size, self.strides), len(self.scales) * len(self.ratios)
        half = len(task.heads) // 2
        first = net.shape(task.heads[half])
        classes = first[2] if len(first) == 3 else self.width(first, at[0]) // count
        offsets = c.joined(net, [c.rows(net, head, 4, count) for head in task.heads[:half]])
        scores = c.joined(net, [c.rows(net, head, classes, count) for head in task.heads[half:]])
        boxes = moved(net, offsets, self.priors(at), self.variances, False, "exp")
        return Decoded(boxes, c.by_class(net, net.op("Sigmoid", scores) if self.sigmoid else scores))

    def priors(self, at: Sequence[tuple[int, int]]) -> Array:
        """[anchors, 4]: x, y, width, height in pixels."""
        sides = np.array([(s / r**0.5, s * r**0.5) for r in self.ratios for s in self.scales], np.float64)
        counts = (len(sides),) * len(at)
        step = c.per_anchor(c.steps(self.strides, counts), at)
        size = c.per_anchor([sides * self.base * stride for stride in self.strides], at)
        return np.concatenate([(c.grids(at, counts) + self.offset) * step, size], 1)
