"""Outputs of detectors with anchors in every cell: rows x, y, w, h, objectness, classes, one head for
each stride."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuflow.heads import Decoded, Head, HeadNet, HeadTask, Shapes
from npuflow.heads import _cells as c
from npuflow.ir.types import Array


@dataclass(frozen=True)
class AnchoredHead(Head):
    """One output for each row of `anchors`: [1, anchors * (5 + classes), rows, columns], the same with values
    last, or [1, anchors, rows, columns, 5 + classes]. Anchors are pairs of width and height in pixels."""

    anchors: c.Anchors = ()

    def misfit(self, shapes: Shapes, size: tuple[int, int], classes: int) -> str:
        wrong = c.anchor_fault(self.anchors)
        if wrong:
            return f"anchors: {wrong}"
        if len(shapes) != len(self.anchors):
            return f"{len(shapes)} outputs, but anchors for {len(self.anchors)} heads"
        counts = c.per_cell(self.anchors)
        values = self.values(shapes[0], counts[0])
        if values < 6 or (classes and values != 5 + classes):
            wanted = f"{5 + classes} for {classes} classes" if classes else "at least 6"
            return f"{list(shapes[0])} with {counts[0]} anchors has {values} values an anchor, but {wanted}"
        at = c.head_sizes(shapes, [values * count for count in counts])
        if at is None:
            return f"the outputs do not all have {values} values an anchor"
        wrong_at = [one for one in at if size[0] % one[0] or size[1] % one[1]]
        return f"{wrong_at[0]} cells are no whole strides of an input of {size}" if wrong_at else ""

    def values(self, shape: tuple[int, ...], anchors: int) -> int:
        """Values of an anchor; 0 if the shape has none."""
        if len(shape) == 5:
            return shape[4] if shape[1] == anchors else 0
        if len(shape) != 4:
            return 0
        first, last = shape[1], shape[3]
        width = first if first % anchors == 0 and first // anchors > 5 else last
        return width // anchors if width % anchors == 0 else 0

    def decode(self, net: HeadNet, task: HeadTask) -> Decoded:
        counts, shapes = c.per_cell(self.anchors), [net.shape(head) for head in task.heads]
        values = self.values(shapes[0], counts[0])
        at = c.head_sizes(shapes, [values * count for count in counts]) or []
        parts = zip(task.heads, counts, strict=True)
        table = c.joined(net, [c.rows(net, head, values, count) for head, count in parts])
        step = c.per_anchor(c.steps([task.size[0] / high for high, _ in at], counts), at)
        cell = c.grids(at, counts)
        size = c.per_anchor(c.anchor_sizes(self.anchors), at)
        boxes = self.boxes(net, table, cell[None], step[None], size[None])
        return Decoded(boxes, c.confidences(net, table, sigmoid=True))

    def boxes(self, net: HeadNet, table: str, cell: Array, step: Array, size: Array) -> str:
        """Corners of the rows; `cell`, `step` and `size` of the anchor that each is for."""
        raise NotImplementedError


def placed(net: HeadNet, part: str, reach: float, cell: Array, step: Array) -> str:
    """Centres in pixels of values between 0 and 1: `reach` cells wide around the middle of the cell."""
    wide = net.op("Mul", part, net.constant(np.asarray(reach * step)))
    return net.op("Add", wide, net.constant((cell - (reach - 1) / 2) * step))
