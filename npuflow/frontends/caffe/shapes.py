"""Caffe's layers that move data: concatenations, slices, other shapes and orders."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from npuflow.frontends.caffe.network import CaffeOperatorError, Net, one
from npuflow.frontends.caffe.parse import CaffeLayer


def concat(net: Net, layer: CaffeLayer) -> None:
    given = layer.table("concat_param")
    axis = int(one(given, "axis", one(given, "concat_dim", 1)))
    net.give(layer, "Concat", *(net.values[b] for b in layer.bottoms), axis=axis)


def split(net: Net, layer: CaffeLayer) -> None:
    given, shape = layer.table("slice_param"), net.shape(layer.bottoms[0])
    axis = int(one(given, "axis", one(given, "slice_dim", 1)))
    at = [int(v) for v in given.get("slice_point", [])]
    count = len(layer.tops)
    bounds = [0, *at, shape[axis]] if at else [shape[axis] // count * i for i in range(count + 1)]
    sizes = [b - a for a, b in pairwise(bounds)]
    net.give(layer, "Split", net.values[layer.bottoms[0]], net.ints(sizes), axis=axis)


def flatten(net: Net, layer: CaffeLayer) -> None:
    given, shape = layer.table("flatten_param"), net.shape(layer.bottoms[0])
    first = int(one(given, "axis", 1)) % len(shape)
    last = int(one(given, "end_axis", -1)) % len(shape)
    merged = int(np.prod(shape[first : last + 1]))
    net.give(
        layer, "Reshape", net.values[layer.bottoms[0]], net.ints([*shape[:first], merged, *shape[last + 1 :]])
    )


def reshape(net: Net, layer: CaffeLayer) -> None:
    given = layer.table("reshape_param")
    if int(one(given, "axis", 0)) or int(one(given, "num_axes", -1)) != -1:
        raise CaffeOperatorError("of some dimensions")
    sizes = [int(v) for v in one(given, "shape", {"dim": []})["dim"]]
    net.give(layer, "Reshape", net.values[layer.bottoms[0]], net.ints(sizes))


def permute(net: Net, layer: CaffeLayer) -> None:
    order = [int(v) for v in layer.table("permute_param").get("order", [])]
    rank = len(net.shape(layer.bottoms[0]))
    order += [i for i in range(rank) if i not in order]
    net.give(layer, "Transpose", net.values[layer.bottoms[0]], perm=order)


def shuffle(net: Net, layer: CaffeLayer) -> None:
    group = int(one(layer.table("shuffle_channel_param"), "group", 1))
    n, c, h, w = net.shape(layer.bottoms[0])
    x = net.inner("Reshape", net.values[layer.bottoms[0]], net.ints([n, group, c // group, h, w]))
    x = net.inner("Transpose", x, perm=[0, 2, 1, 3, 4])
    net.give(layer, "Reshape", x, net.ints([n, c, h, w]))


def nearest(net: Net, layer: CaffeLayer) -> None:
    factor = int(one(layer.table("upsample_param"), "scale", 2))
    n, c, h, w = net.shape(layer.bottoms[0])
    net.give(
        layer,
        "Resize",
        net.values[layer.bottoms[0]],
        "",
        "",
        net.ints([n, c, h * factor, w * factor]),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def crop(net: Net, layer: CaffeLayer) -> None:
    given, shape, like = layer.table("crop_param"), net.shape(layer.bottoms[0]), net.shape(layer.bottoms[1])
    axis = int(one(given, "axis", 2)) % len(shape)
    offsets = [int(v) for v in given.get("offset", [0])]
    count = len(shape) - axis
    begins = offsets * count if len(offsets) == 1 else offsets
    ends = [b + like[axis + i] for i, b in enumerate(begins)]
    axes = range(axis, len(shape))
    net.give(layer, "Slice", net.values[layer.bottoms[0]], net.ints(begins), net.ints(ends), net.ints(axes))


SHAPES: dict[str, Callable[[Net, CaffeLayer], None]] = {
    "Concat": concat,
    "Slice": split,
    "Flatten": flatten,
    "Reshape": reshape,
    "Permute": permute,
    "ShuffleChannel": shuffle,
    "Upsample": nearest,
    "Crop": crop,
}
