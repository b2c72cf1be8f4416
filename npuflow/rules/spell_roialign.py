"""RoiAlign as two products for each box: with weights of columns, and with weights of rows."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

import numpy as np

from npuflow.ir.types import Array
from npuflow.rules import RULES
from npuflow.rules._numbers import number
from npuflow.rules._parts import Decomposition, Parts
from npuflow.rules._tents import MAKES, MOST, tents


@RULES.entry
class SpellRoiAlign(Decomposition):
    """The mean or the maximum over samples for each place of the result. The samples of a row share their
    weights, and so do those of a column.

    With `sampling_ratio` 0 a box has as many samples as it has pixels for a place. Boxes that are computed
    have the weights of every number of samples, of which one is chosen: up to that of a box as large as the
    image; a larger box has no more samples than that."""

    triggers = ("host:roialign",)
    makes = (*MAKES, "gemm", "reducemean", "reducemax", "expand", "gather", "lookup", "host")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        (count, channels, height, width), boxes = parts.shape(parts.input(0)), parts.shape(parts.input(1))[0]
        rows = _Side(1, height, parts.integer("output_height", 1))
        columns = _Side(0, width, parts.integer("output_width", 1))
        peaks = parts.attribute("mode", "avg") == "max"
        if peaks and parts.number(1) is None and parts.integer("sampling_ratio", 0) <= 0:
            return "mode max: the number of samples depends on boxes that are computed (sampling_ratio = 0)"
        each = max(side.most(parts) * side.bins * (2 if peaks else 1) for side in (rows, columns))
        if boxes * max(channels * height, (height + width) * each) * width > MOST:
            return f"{boxes} boxes of {channels} x {height} x {width} elements, {each} samples in a row"
        if count == 1:
            image = parts.reshape(parts.input(0), (1, channels * height, width))
            images = parts.expand(image, (boxes, channels * height, width))
        else:
            images = parts.reshape(_images(parts), (boxes, channels * height, width))
        across, down = (_weights(parts, side, peaks) for side in (columns, rows))
        (wide, high), places = (parts.shape(w)[2] for w in (across, down)), (columns.bins, rows.bins)
        found = parts.reshape(parts.matmul(images, across), (boxes, channels, height, wide))
        turned = parts.reshape(parts.transpose(found, (0, 1, 3, 2)), (boxes, channels * wide, height))
        made = parts.matmul(turned, down)
        if peaks:
            for most, shape in (
                (3, (boxes, channels * wide, rows.bins, high // rows.bins)),
                (2, (boxes * channels, columns.bins, wide // columns.bins, rows.bins)),
            ):
                made = parts.reduce("max", parts.reshape(made, shape), (most,), keep=False)
        return (parts.transpose(parts.reshape(made, (boxes, channels, *places)), (0, 1, 3, 2)),)


@dataclass(frozen=True)
class _Side:
    """Rows or columns: `size` of them in the image, `bins` in the result; corners `first` and `first` + 2 of
    a box."""

    first: int
    size: int
    bins: int

    def most(self, parts: Parts) -> int:
        """Samples of a place of the result, of the largest box."""
        ratio, boxes = parts.integer("sampling_ratio", 0), parts.number(1)
        if ratio > 0:
            return ratio
        if boxes is None:
            return ceil(self.size / self.bins)
        _, extent = self.box(parts, boxes)
        return max(1, *(ceil(e / self.bins) for e in extent.reshape(-1)))

    def box(self, parts: Parts, boxes: Array) -> tuple[Array, Array]:
        """Where the boxes begin in the image, and how long they are."""
        scaled = boxes * np.float32(parts.real("spatial_scale", 1.0))
        start, extent = scaled[:, self.first], scaled[:, self.first + 2] - scaled[:, self.first]
        return (start, np.maximum(extent, 1)) if _old(parts) else (start - np.float32(0.5), extent)


def _images(parts: Parts) -> str:
    """The image of every box."""
    x, picks = parts.input(0), parts.number(2)
    if picks is not None:
        indices = tuple(int(i) for i in picks.reshape(-1))
        return parts.op("gather", (x,), indices=indices, index_shape=(len(indices),), axis=0)
    count, *image = parts.shape(x)
    table = parts.reshape(x, (1, count, prod(image)))
    return parts.op("lookup", (table, number(parts, parts.input(2))))


def _old(parts: Parts) -> bool:
    """Boxes by the corners of pixels, at least one wide."""
    return parts.attribute("coordinate_transformation_mode", "half_pixel") == "output_half_pixel"


def _weights(parts: Parts, side: _Side, peaks: bool) -> str:
    """[boxes, size, bins]; with `peaks` those of the two neighbours of every sample on their own, [boxes,
    size, bins * 2 * samples]: onnxruntime takes the maximum over weighted pixels."""
    ratio, boxes = parts.integer("sampling_ratio", 0), parts.number(1)
    if ratio > 0:
        return _sampled(parts, side, ratio, peaks)
    if boxes is not None:
        return _known(parts, side, boxes, peaks)
    corners = (parts.slice(parts.input(1), 1, k, k + 1) for k in (side.first + 2, side.first))
    extent = parts.mul(parts.sub(*corners), parts.real("spatial_scale", 1.0) / side.bins, "extent")
    most, total = side.most(parts), ""
    first = -np.inf if _old(parts) else 0.0  # a box without extent has no samples
    for count in range(1, most + 1):
        chosen = _longer(parts, extent, first if count == 1 else count - 1.0)
        if count < most:
            more = _longer(parts, extent, float(count))
            chosen = parts.sub(chosen, more, "chosen") if chosen else parts.sub(1.0, more, "chosen")
        one = _sampled(parts, side, count, peaks=False)
        if chosen:
            one = parts.mul(one, parts.reshape(chosen, (parts.shape(one)[0], 1, 1)), "weights")
        total = parts.add(total, one, "weights") if total else one
    return total


def _longer(parts: Parts, extent: str, least: float) -> str:
    """1 where it is more than that, else 0; "" where it is always."""
    if np.isinf(least):
        return ""
    beyond = parts.op("sign", (parts.sub(extent, least, "beyond"),))
    return parts.clip(beyond, 0.0, 1.0, "longer")


def _known(parts: Parts, side: _Side, boxes: Array, peaks: bool) -> str:
    """Of constant boxes, each with samples of its own number; with `peaks` the last is repeated."""
    starts, extents = side.box(parts, boxes)
    most, rows = side.most(parts), np.arange(side.size)[:, None]
    made = np.zeros((len(boxes), side.size, side.bins, 2 * most if peaks else 1), np.float32)
    for n, (start, extent) in enumerate(zip(starts, extents, strict=True)):
        count = ceil(extent / side.bins)
        if count <= 0:
            continue
        share = (np.arange(side.bins * count) + 0.5) / (side.bins * count)
        place = (start + extent * share).astype(np.float32)
        near = np.clip(place, 0, side.size - 1)
        weight = np.maximum(0, 1 - np.abs(near - rows)) * ((place >= -1) & (place <= side.size))
        if not peaks:
            made[n, :, :, 0] = weight.reshape(side.size, side.bins, count).mean(2)
            continue
        pair = np.stack([weight * (rows <= near), weight * (rows > near)], -1)
        pair = pair.reshape(side.size, side.bins, 2 * count)
        made[n] = pair[:, :, np.minimum(np.arange(2 * most), 2 * count - 1)]
    return parts.const(made.reshape(len(boxes), side.size, -1), "weights")


def _sampled(parts: Parts, side: _Side, ratio: int, peaks: bool) -> str:
    """With the same number of samples in every box."""
    boxes, (first, size, bins) = parts.shape(parts.input(1))[0], (side.first, side.size, side.bins)
    scale = parts.real("spatial_scale", 1.0)
    share = (np.arange(bins * ratio) + 0.5) / (bins * ratio)  # of the way through the box
    if _old(parts):
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
    near = parts.clip(near, 0.0, size - 1.0, "place")
    weights = parts.mul(tents(parts, near, size), inside, "weights")
    if peaks:
        rows = parts.const(np.arange(size)[:, None], "rows")
        above = parts.clip(parts.op("sign", (parts.sub(rows, near),)), 0.0, 1.0, "above")
        upper = parts.mul(weights, above, "upper")
        pair = (parts.reshape(w, (boxes, size, bins, ratio)) for w in (parts.sub(weights, upper), upper))
        return parts.reshape(parts.concat(tuple(pair), 3), (boxes, size, 2 * bins * ratio))
    return parts.reduce("mean", parts.reshape(weights, (boxes, size, bins, ratio)), (3,), keep=False)
