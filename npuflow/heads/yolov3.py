"""YOLOv2 to YOLOv4: centre by a sigmoid within the cell, size as an exponent times the anchor's.

Source: J. Redmon, A. Farhadi, "YOLOv3: an incremental improvement", 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from npuflow.base.tables import Range
from npuflow.heads import HEADS, HeadNet
from npuflow.heads import _cells as c
from npuflow.heads._anchored import AnchoredHead, placed
from npuflow.ir.types import Array


@HEADS.entry
@dataclass(frozen=True)
class Yolov3Head(AnchoredHead):
    """Heads before any sigmoid, the coarsest first as darknet has them. `anchors`: of every head, width and
    height of its anchors in pixels."""

    anchors: c.Anchors = (
        (116, 90, 156, 198, 373, 326), (30, 61, 62, 45, 59, 119), (10, 13, 16, 30, 33, 23),
    )
    scale_xy: Annotated[float, Range(1, 2)] = 1.0
    """How far centres reach beyond their cell (YOLOv4: 1.05 to 1.2)."""

    def boxes(self, net: HeadNet, table: str, cell: Array, step: Array, size: Array) -> str:
        centre = placed(net, net.op("Sigmoid", c.columns(net, table, 0, 2)), self.scale_xy, cell, step)
        half = net.op("Mul", net.op("Exp", c.columns(net, table, 2, 4)), net.constant(size / 2))
        return c.corners(net, centre, half)
