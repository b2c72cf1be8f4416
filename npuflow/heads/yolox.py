"""YOLOX: no anchors; centre relative to the cell, size as an exponent, both in strides.

Source: Z. Ge and others, "YOLOX: exceeding YOLO series in 2021", 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.heads import HEADS, Decoded, Head, HeadNet, HeadTask, Shapes
from npuflow.heads import _cells as c


@HEADS.entry
@dataclass(frozen=True)
class YoloxHead(Head):
    """One output [1, cells, 5 + classes], or one [1, 5 + classes, rows, columns] for each stride: x, y, w, h,
    objectness, classes."""

    strides: tuple[int, ...] = (8, 16, 32)
    sigmoid: bool = False
    """Objectness and classes do not come through a sigmoid yet."""

    def misfit(self, shapes: Shapes, size: tuple[int, int], classes: int) -> str:
        width = shapes[0][-1] if len(shapes[0]) == 3 else shapes[0][1]
        if classes and width != 5 + classes:
            return f"rows of {width} values, but {5 + classes} for {classes} classes"
        if width < 6:
            return f"rows of {width} values, but at least 6: x, y, w, h, objectness, class"
        at = c.strided(size, self.strides)
        if len(shapes) == 1 and len(shapes[0]) == 3:
            count = c.counts(at, (1,) * len(at))
            found = shapes[0][1]
            return "" if found == count else f"{found} rows, but {count} cells at strides {self.strides}"
        if c.head_sizes(shapes, (width,) * len(shapes)) == at:
            return ""
        return f"no heads of {at} cells of {width} values"

    def decode(self, net: HeadNet, task: HeadTask) -> Decoded:
        at, ones = c.strided(task.size, self.strides), (1,) * len(self.strides)
        width = net.shape(task.heads[0])[-1 if len(net.shape(task.heads[0])) == 3 else 1]
        table = c.joined(net, [c.rows(net, head, width) for head in task.heads])
        step = c.per_anchor(c.steps(self.strides, ones), at)
        centre = net.op("Add", c.columns(net, table, 0, 2), net.constant(c.grids(at, ones)[None]))
        centre = net.op("Mul", centre, net.constant(step[None]))
        half = net.op("Mul", net.op("Exp", c.columns(net, table, 2, 4)), net.constant(step[None] / 2))
        return Decoded(c.corners(net, centre, half), c.confidences(net, table, self.sigmoid))
