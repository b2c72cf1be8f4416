"""SSD and its kin (BlazeFace, TFLite's detectors): offsets to prior boxes, scores by softmax or sigmoid.

Source: W. Liu and others, "SSD: single shot multibox detector", 2016.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from npuflow.base.tables import Fault, Range
from npuflow.heads import HEADS, Decoded, Head, HeadNet, HeadTask, Shapes
from npuflow.heads import _cells as c
from npuflow.heads._priors import Growth, moved

Variance = Annotated[float, Range(1e-6, 10)]


@HEADS.entry
@dataclass(frozen=True)
class SsdHead(Head):
    """Two outputs: offsets [1, boxes, 4 or more] and scores [1, boxes, classes]. `anchors`: of every map,
    width and height of a cell's prior boxes in pixels, in the network's order."""

    anchors: c.Anchors = ()
    strides: tuple[int, ...] = (8, 16, 32, 64, 128, 256)
    """Of every map, how many pixels a cell is wide."""
    variances: tuple[Variance, Variance, Variance, Variance] = (0.1, 0.1, 0.2, 0.2)
    """What the offsets of x, y, width and height are multiplied by."""
    order: Literal["xywh", "yxhw"] = "xywh"
    growth: Growth = "exp"
    """Sizes as exponents of the prior's, or in proportion to it."""
    scores: Literal["softmax", "sigmoid", "none"] = "softmax"
    """What is still to be done to scores."""
    background: Annotated[int, Range(-1, None)] = 0
    """The class that stands for nothing, which is left out; -1: there is none."""

    every_class = True

    def check(self) -> Iterator[Fault]:
        wrong = c.anchor_fault(self.anchors)
        if wrong:
            hint = "pairs of width and height"
            yield Fault("anchors", f"no anchors: {wrong}", hint=hint, code="NF-MODEL-277")

    def misfit(self, shapes: Shapes, size: tuple[int, int], classes: int) -> str:
        if len(shapes) != 2 or any(len(shape) != 3 for shape in shapes):
            return "two outputs [1, boxes, values] are needed, offsets and scores"
        if not self.anchors:
            return "its prior boxes are not stated: [postprocess.ssd] anchors, strides"
        if len(self.anchors) != len(self.strides):
            return f"anchors for {len(self.anchors)} maps, but {len(self.strides)} strides"
        offsets, scores = shapes[0], shapes[1]
        count = c.counts(c.strided(size, self.strides), c.per_cell(self.anchors))
        if offsets[1] != count or scores[1] != count or offsets[2] < 4:
            return f"the outputs are {list(offsets)} and {list(scores)}, the prior boxes {count}"
        if classes and scores[2] != classes + (self.background >= 0):
            return f"{scores[2]} scores a box for {classes} classes"
        if self.background >= scores[2] or scores[2] == (self.background >= 0):
            return f"class {self.background} of {scores[2]} is the background"
        return ""

    def decode(self, net: HeadNet, task: HeadTask) -> Decoded:
        at, counts = c.strided(task.size, self.strides), c.per_cell(self.anchors)
        step = c.per_anchor(c.steps(self.strides, counts), at)
        centre, size = (c.grids(at, counts) + 0.5) * step, c.per_anchor(c.anchor_sizes(self.anchors), at)
        offsets, scores = task.heads
        swapped = self.order == "yxhw"
        priors = np.concatenate([centre, size], 1)
        boxes = moved(net, offsets, priors, self.variances, swapped, self.growth)
        if self.scores == "softmax":
            scores = net.op("Softmax", scores, axis=2)
        elif self.scores == "sigmoid":
            scores = net.op("Sigmoid", scores)
        return Decoded(boxes, c.by_class(net, self.foreground(net, scores)))

    def foreground(self, net: HeadNet, scores: str) -> str:
        """Scores without the background's."""
        width, at = net.shape(scores)[2], self.background
        if at < 0:
            return scores
        parts = [(0, at), (at + 1, width)]
        return c.joined(net, [c.columns(net, scores, a, b) for a, b in parts if a < b], axis=2)
