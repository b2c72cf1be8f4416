"""RoiAlign as two products for each box: with weights of columns, and with weights of rows."""

from __future__ import annotations

from math import prod

import numpy as np

from npuflow.rules import RULES
from npuflow.rules._numbers import number
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._tents import MAKES, MOST, tents


@RULES.entry
class SpellRoiAlign(Decomposition):
    """The mean over a fixed number of samples for each place of the result. The samples of a row share their
    weights, and so do those of a column."""

    triggers = ("host:roialign",)
    makes = (*MAKES, "gemm", "reducemean", "expand", "gather", "lookup", "host")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        ratio, mode = parts.integer("sampling_ratio", 0), parts.attribute("mode", "avg")
        if ratio <= 0:
            return "its number of samples depends on the boxes (sampling_ratio = 0)"
        if mode != "avg":
            return f"mode {mode}"
        (count, channels, height, width), boxes = parts.shape(parts.input(0)), parts.shape(parts.input(1))[0]
        high, wide = parts.integer("output_height", 1), parts.integer("output_width", 1)
        if boxes * max(channels * height, (height + width) * ratio * max(high, wide)) * width > MOST:
            return f"{boxes} boxes of {channels} x {height} x {width} elements"
        if count == 1:
            image = parts.reshape(parts.input(0), (1, channels * height, width))
            images = parts.expand(image, (boxes, channels * height, width))
        else:
            images = _images(parts)
            images = parts.reshape(images, (boxes, channels * height, width))
        columns = _weights(parts, 0, width, wide, ratio)
        rows = _weights(parts, 1, height, high, ratio)
        found = parts.reshape(parts.matmul(images, columns), (boxes, channels, height, wide))
        turned = parts.reshape(parts.transpose(found, (0, 1, 3, 2)), (boxes, channels * wide, height))
        made = parts.reshape(parts.matmul(turned, rows), (boxes, channels, wide, high))
        return (parts.transpose(made, (0, 1, 3, 2)),)


def _images(parts: Parts) -> str:
    """The image of every box."""
    x, picks = parts.input(0), parts.number(2)
    if picks is not None:
        indices = tuple(int(i) for i in picks.reshape(-1))
        return parts.op("gather", (x,), indices=indices, index_shape=(len(indices),), axis=0)
    count, *image = parts.shape(x)
    table = parts.reshape(x, (1, count, prod(image)))
    return parts.op("lookup", (table, number(parts, parts.input(2))))


def _weights(parts: Parts, first: int, size: int, bins: int, ratio: int) -> str:
    """[boxes, size, bins] from corners `first` and `first` + 2 of the boxes."""
    boxes = parts.shape(parts.input(1))[0]
    scale = parts.real("spatial_scale", 1.0)
    old = parts.attribute("coordinate_transformation_mode", "half_pixel") == "output_half_pixel"
    share = (np.arange(bins * ratio) + 0.5) / (bins * ratio)  # of the way through the box
    if old:  # a box is at least one wide
        start = parts.mul(parts.slice(parts.input(1), 1, first, first + 1), scale, "start")
        end = parts.mul(parts.slice(parts.input(1), 1, first + 2, first + 3), scale, "end")
        wide = parts.clip(parts.sub(end, start), 1.0, what="wide")
        place = parts.add(start, parts.mul(wide, parts.const(share[None], "shares")), "place")
    else:
        matrix = np.zeros((4, bins * ratio))
        matrix[first], matrix[first + 2] = scale * (1 - share), scale * share
        shift = parts.const(np.full(bins * ratio, -0.5), "shift")
        place = parts.op("gemm", (parts.input(1), parts.const(matrix, "ways"), shift), "place")
    place = parts.reshape(place, (boxes, 1, bins * ratio))
    near = parts.clip(place, -2.0, size + 1.0, "near")
    below, above = (
        parts.clip(parts.op("sign", (side,)), 0.0, 1.0, "outside")
        for side in (parts.sub(-1.0, near), parts.sub(near, float(size)))
    )
    inside = parts.sub(parts.sub(1.0, below), above, "inside")
    weights = parts.mul(tents(parts, parts.clip(near, 0.0, size - 1.0, "place"), size), inside, "weights")
    return parts.reduce("mean", parts.reshape(weights, (boxes, size, bins, ratio)), (3,), keep=False)
