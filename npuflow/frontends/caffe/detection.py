"""Layers of Caffe's detectors: SSD's normalisation, prior boxes and post-processing, pooling of regions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from npuflow.frontends.caffe.network import CaffeOperatorError, Net, Options, needed, one
from npuflow.frontends.caffe.parse import CaffeLayer
from npuflow.ir.types import Array


def normalize(net: Net, layer: CaffeLayer) -> None:
    """Every pixel (or the whole image) divided by its length, times a factor for each channel."""
    given, x = layer.table("norm_param"), net.values[layer.bottoms[0]]
    factor = needed(layer, 1)[0].reshape(-1)
    shaped = net.constant(factor.reshape(-1, 1, 1) if factor.size > 1 else factor, "scale")
    if one(given, "across_spatial", True):
        n, c, h, w = net.shape(layer.bottoms[0])
        flat = net.inner("Reshape", x, net.ints([n, c * h * w]))
        unit = net.inner("Reshape", net.inner("LpNormalization", flat, axis=1, p=2), net.ints([n, c, h, w]))
    else:
        unit = net.inner("LpNormalization", x, axis=1, p=2)
    net.give(layer, "Mul", unit, shaped)


def prior_box(net: Net, layer: CaffeLayer) -> None:
    """Boxes that depend on sizes alone: a constant."""
    given = layer.table("prior_box_param")
    high, wide = net.shape(layer.bottoms[0])[2:]
    image = [int(v) for v in net.shape(layer.bottoms[1])[2:]]
    size = int(one(given, "img_size", 0))
    image = [
        int(one(given, "img_h", size or image[0])),
        int(one(given, "img_w", size or image[1])),
    ]
    step = float(one(given, "step", 0.0))
    steps = [
        float(one(given, name, step)) or side / count
        for name, side, count in zip(("step_h", "step_w"), image, (high, wide), strict=True)
    ]
    sizes = np.asarray(_sizes(given)) / 2
    offset = float(one(given, "offset", 0.5))
    rows, columns = np.meshgrid(np.arange(high), np.arange(wide), indexing="ij")
    centres = np.stack([(columns + offset) * steps[1], (rows + offset) * steps[0]], -1)[:, :, None]
    boxes = np.concatenate([centres - sizes, centres + sizes], -1) / (image[1], image[0], image[1], image[0])
    if one(given, "clip", False):
        boxes = boxes.clip(0.0, 1.0)
    stated = [float(v) for v in given.get("variance", [0.1])]
    variances = stated if len(stated) == 4 else stated[:1] * 4
    flat = boxes.reshape(-1)
    made = np.stack([flat, np.resize(variances, flat.size)])[None].astype(np.float32)
    net.values[layer.tops[0]] = net.constant(made, "boxes")


def _sizes(given: Options) -> list[tuple[float, float]]:
    """Widths and heights of the boxes of one cell, in Caffe's order."""
    ratios = [1.0]
    for value in given.get("aspect_ratio", []):
        for ratio in (float(value), 1 / float(value)) if one(given, "flip", True) else (float(value),):
            if all(abs(ratio - known) >= 1e-6 for known in ratios):
                ratios.append(ratio)
    largest = [float(v) for v in given.get("max_size", [])]
    found: list[tuple[float, float]] = []
    for i, smallest in enumerate(float(v) for v in given.get("min_size", [])):
        found.append((smallest, smallest))
        if largest:
            found.append((math.sqrt(smallest * largest[i]),) * 2)
        found += [(smallest * math.sqrt(r), smallest / math.sqrt(r)) for r in ratios[1:]]
    if not found:
        raise CaffeOperatorError("without min_size")
    return found


def detection_output(net: Net, layer: CaffeLayer) -> None:
    """Boxes decoded, suppressed class by class, and the best of all: rows of (image, class, score, box)."""
    given = layer.table("detection_output_param")
    priors = net.graph.arrays.get(net.values[layer.bottoms[2]])
    classes, background = int(one(given, "num_classes", 0)), int(one(given, "background_label_id", 0))
    if priors is None:
        raise CaffeOperatorError("prior boxes that the network computes")
    if not one(given, "share_location", True) or net.shape(layer.bottoms[0])[0] != 1:
        raise CaffeOperatorError("locations for each class, or several images")
    count = priors.shape[2] // 4
    boxes = _decoded(net, layer, given, priors, count)
    scores = net.inner("Reshape", net.values[layer.bottoms[1]], net.ints([1, count, classes]))
    scores = net.inner("Transpose", scores, perm=[0, 2, 1])
    kept = [i for i in range(classes) if i != background]
    scores = net.inner("Gather", scores, net.ints(kept), axis=1)
    found = _suppressed(net, given, boxes, scores, count)
    columns = [
        net.inner("Gather", net.constant(np.asarray(kept, np.float32)), _column(net, found, 1), axis=0),
        net.inner("GatherND", scores, found),
    ]
    zero = net.inner("Mul", columns[0], net.constant(np.float32(0.0)))
    parts = [net.inner("Unsqueeze", one_, net.ints([1])) for one_ in (zero, *columns)]
    flat = net.inner("Reshape", boxes, net.ints([count, 4]))
    parts.append(net.inner("Gather", flat, _column(net, found, 2), axis=0))
    rows = net.inner("Concat", *parts, axis=1)
    net.give(layer, "Unsqueeze", rows, net.ints([0, 1]))


def _column(net: Net, found: str, place: int) -> str:
    return net.inner("Gather", found, net.constant(np.asarray(place, np.int64)), axis=1)


def _decoded(net: Net, layer: CaffeLayer, given: Options, priors: Array, count: int) -> str:
    """Corners of the boxes that the network found, from what it says of the prior boxes."""
    corners, variances = priors.reshape(2, count, 4).astype(np.float64)
    if one(given, "variance_encoded_in_target", False):
        variances = np.ones_like(variances)
    place = net.inner("Reshape", net.values[layer.bottoms[0]], net.ints([1, count, 4]))
    kind = str(one(given, "code_type", "CORNER"))
    if kind in ("CORNER", "1"):
        moved = net.inner("Mul", place, net.constant(variances.astype(np.float32)))
        return net.inner("Add", moved, net.constant(corners.astype(np.float32)))
    if kind not in ("CENTER_SIZE", "2"):
        raise CaffeOperatorError(f"boxes coded as {kind}")
    size, centre = corners[:, 2:] - corners[:, :2], (corners[:, 2:] + corners[:, :2]) / 2
    halves = []
    for begin, factor in ((0, variances[:, :2] * size), (2, variances[:, 2:])):
        half = net.inner("Slice", place, net.ints([begin]), net.ints([begin + 2]), net.ints([2]))
        halves.append(net.inner("Mul", half, net.constant(factor.astype(np.float32))))
    middle = net.inner("Add", halves[0], net.constant(centre.astype(np.float32)))
    reach = net.inner("Mul", net.inner("Exp", halves[1]), net.constant((size / 2).astype(np.float32)))
    return net.inner("Concat", net.inner("Sub", middle, reach), net.inner("Add", middle, reach), axis=2)


def _suppressed(net: Net, given: Options, boxes: str, scores: str, count: int) -> str:
    """Places (image, class, box) that are left: per class by overlap, then the best of all classes."""
    rule = given["nms_param"][-1] if given.get("nms_param") else {}
    top, keep = int(one(rule, "top_k", -1)), int(one(given, "keep_top_k", -1))
    candidates = scores
    if 0 < top < count:  # the best of each class, before any is suppressed
        values, places = (net.graph.free(f"{net.origin}:{name}") for name in ("best", "places"))
        net.graph.call("TopK", [scores, net.ints([top])], [values, places], net.origin, axis=2)
        last = net.inner("Slice", values, net.ints([top - 1]), net.ints([top]), net.ints([2]))
        least = net.inner("GreaterOrEqual", scores, last)
        candidates = net.inner("Where", least, scores, net.constant(np.float32(-1.0)))
    limits = [
        net.constant(np.asarray([v], np.float32))
        for v in (
            float(one(rule, "nms_threshold", 0.3)),
            float(one(given, "confidence_threshold", -np.inf)),
        )
    ]
    found = net.inner("NonMaxSuppression", boxes, candidates, net.ints([count]), *limits)
    if keep <= 0:
        return found
    # the best of all, in the order of classes
    number = net.inner("Slice", net.inner("Shape", found), net.ints([0]), net.ints([1]), net.ints([0]))
    number = net.inner("Min", number, net.ints([keep]))
    names = [net.graph.free(f"{net.origin}:{name}") for name in ("score", "rank", "order", "again")]
    net.graph.call("TopK", [net.inner("GatherND", scores, found), number], names[:2], net.origin)
    net.graph.call("TopK", [names[1], number], names[2:], net.origin, largest=0)
    return net.inner("Gather", found, names[2], axis=0)


def roi_pooling(net: Net, layer: CaffeLayer) -> None:
    """The largest element of each window of each region."""
    given = layer.table("roi_pooling_param")
    sizes = [int(one(given, name, 0)) for name in ("pooled_h", "pooled_w")]
    regions = net.shape(layer.bottoms[1])
    rois = net.inner("Reshape", net.values[layer.bottoms[1]], net.ints([int(np.prod(regions)) // 5, 5]))
    scale = float(one(given, "spatial_scale", 1.0))
    net.give(layer, "MaxRoiPool", net.values[layer.bottoms[0]], rois, pooled_shape=sizes, spatial_scale=scale)


DETECTION: dict[str, Callable[[Net, CaffeLayer], None]] = {
    "Normalize": normalize,
    "PriorBox": prior_box,
    "DetectionOutput": detection_output,
    "ROIPooling": roi_pooling,
}
