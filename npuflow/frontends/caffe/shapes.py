"""Caffe's layers that move data: concatenations, slices, other shapes and orders."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from npuflow.frontends.caffe.network import CaffeOperatorError, Net, needed, one, pair
from npuflow.frontends.caffe.parse import CaffeLayer


def concat(net: Net, layer: CaffeLayer) -> None:
    """Along any axis."""
    given = layer.table("concat_param")
    axis = int(one(given, "axis", one(given, "concat_dim", 1)))
    net.give(layer, "Concat", *(net.values[b] for b in layer.bottoms), axis=axis)


def split(net: Net, layer: CaffeLayer) -> None:
    """At stated points, or into equal parts."""
    given, shape = layer.table("slice_param"), net.shape(layer.bottoms[0])
    axis = int(one(given, "axis", one(given, "slice_dim", 1)))
    at = [int(v) for v in given.get("slice_point", [])]
    count = len(layer.tops)
    bounds = [0, *at, shape[axis]] if at else [shape[axis] // count * i for i in range(count + 1)]
    sizes = [b - a for a, b in pairwise(bounds)]
    net.give(layer, "Split", net.values[layer.bottoms[0]], net.ints(sizes), axis=axis)


def flatten(net: Net, layer: CaffeLayer) -> None:
    """Axes from `axis` to `end_axis` as one."""
    given, shape = layer.table("flatten_param"), net.shape(layer.bottoms[0])
    first = int(one(given, "axis", 1)) % len(shape)
    last = int(one(given, "end_axis", -1)) % len(shape)
    merged = int(np.prod(shape[first : last + 1]))
    net.give(
        layer, "Reshape", net.values[layer.bottoms[0]], net.ints([*shape[:first], merged, *shape[last + 1 :]])
    )


def reshape(net: Net, layer: CaffeLayer) -> None:
    """Other sizes for `num_axes` dimensions from `axis` on; 0 keeps a size, -1 takes what is left."""
    given, shape = layer.table("reshape_param"), net.shape(layer.bottoms[0])
    first, count = int(one(given, "axis", 0)), int(one(given, "num_axes", -1))
    first = first if first >= 0 else len(shape) + first + 1
    last = len(shape) if count == -1 else first + count
    sizes = [int(v) for v in one(given, "shape", {}).get("dim", [])]
    sizes = [shape[first + i] if size == 0 else size for i, size in enumerate(sizes)]
    sizes = [*shape[:first], *sizes, *shape[last:]]
    net.give(layer, "Reshape", net.values[layer.bottoms[0]], net.ints(sizes))


def permute(net: Net, layer: CaffeLayer) -> None:
    """Another order of axes."""
    order = [int(v) for v in layer.table("permute_param").get("order", [])]
    rank = len(net.shape(layer.bottoms[0]))
    order += [i for i in range(rank) if i not in order]
    net.give(layer, "Transpose", net.values[layer.bottoms[0]], perm=order)


def shuffle(net: Net, layer: CaffeLayer) -> None:
    """Channels of groups in turn."""
    group = int(one(layer.table("shuffle_channel_param"), "group", 1))
    n, c, h, w = net.shape(layer.bottoms[0])
    x = net.inner("Reshape", net.values[layer.bottoms[0]], net.ints([n, group, c // group, h, w]))
    x = net.inner("Transpose", x, perm=[0, 2, 1, 3, 4])
    net.give(layer, "Reshape", x, net.ints([n, c, h, w]))


def upsample(net: Net, layer: CaffeLayer) -> None:
    """Pixels repeated, or put back to where a pooling layer found them (its mask is the second blob)."""
    given, (n, c, h, w) = layer.table("upsample_param"), net.shape(layer.bottoms[0])
    factors = pair(given, "scale", 2)
    high = int(one(given, "upsample_h", h * factors[0] - int(one(given, "pad_out_h", False))))
    wide = int(one(given, "upsample_w", w * factors[1] - int(one(given, "pad_out_w", False))))
    x, sizes = net.values[layer.bottoms[0]], net.ints([n, c, high, wide])
    if len(layer.bottoms) > 1:
        net.give(
            layer,
            "MaxUnpool",
            x,
            net.values[layer.bottoms[1]],
            sizes,
            kernel_shape=factors,
            strides=factors,
        )
        return
    net.give(
        layer,
        "Resize",
        x,
        "",
        "",
        sizes,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def interp(net: Net, layer: CaffeLayer) -> None:
    """Bilinear with corners on corners, after a crop: DeepLab's and PSPNet's layer."""
    given, (n, c, *image) = layer.table("interp_param"), net.shape(layer.bottoms[0])
    begin, end = int(one(given, "pad_beg", 0)), int(one(given, "pad_end", 0))
    if begin > 0 or end > 0:
        raise CaffeOperatorError("with padding")
    x = net.values[layer.bottoms[0]]
    if begin or end:
        stops = [size + end for size in image]
        x = net.inner("Slice", x, net.ints([-begin] * 2), net.ints(stops), net.ints([2, 3]))
        image = [size + begin + end for size in image]
    shrink, zoom = int(one(given, "shrink_factor", 1)), int(one(given, "zoom_factor", 1))
    sizes = [(size - 1) // shrink + 1 for size in image]
    sizes = [size + (size - 1) * (zoom - 1) for size in sizes]
    if len(layer.bottoms) > 1:
        sizes = list(net.shape(layer.bottoms[1])[2:])
    elif "height" in given:
        sizes = [int(one(given, name, 0)) for name in ("height", "width")]
    net.give(
        layer,
        "Resize",
        x,
        "",
        "",
        net.ints([n, c, *sizes]),
        mode="linear",
        coordinate_transformation_mode="align_corners",
    )


def tile(net: Net, layer: CaffeLayer) -> None:
    """A blob repeated along an axis."""
    given, rank = layer.table("tile_param"), len(net.shape(layer.bottoms[0]))
    repeats = [1] * rank
    repeats[int(one(given, "axis", 1))] = int(one(given, "tiles", 1))
    net.give(layer, "Tile", net.values[layer.bottoms[0]], net.ints(repeats))


def parameter(net: Net, layer: CaffeLayer) -> None:
    """A constant, in the shape that the layer states."""
    (values, *_), stated = needed(layer, 1), one(layer.table("parameter_param"), "shape", {})
    if stated.get("dim"):
        values = values.reshape([int(size) for size in stated["dim"]])
    net.values[layer.tops[0]] = net.constant(values, "values")


def embed(net: Net, layer: CaffeLayer) -> None:
    """Rows of a table, by number."""
    given = layer.table("embed_param")
    rows, *rest = needed(layer, 1 + bool(one(given, "bias_term", True)))
    width = int(one(given, "num_output", 0))
    if rest:
        rows = rows.reshape(-1, width) + rest[0].reshape(-1)
    numbers = net.inner("Cast", net.values[layer.bottoms[0]], to=7)
    net.give(layer, "Gather", net.constant(rows.reshape(-1, width), "rows"), numbers, axis=0)


def reorg(net: Net, layer: CaffeLayer) -> None:
    """YOLO's blocks of pixels as channels, in Darknet's order: the image read as one of fewer channels."""
    given, (n, c, h, w) = layer.table("reorg_param"), net.shape(layer.bottoms[0])
    s = int(one(given, "stride", 2))
    few = c // (s * s)
    if few * s * s != c:
        raise CaffeOperatorError(f"of {c} channels by {s} x {s}")
    x = net.values[layer.bottoms[0]]
    if one(given, "reverse", False):
        blocks, order, sizes = [n, s, s, few, h, w], [0, 3, 4, 1, 5, 2], [n, few, h * s, w * s]
    else:
        blocks, order, sizes = [n, few, h, s, w, s], [0, 3, 5, 1, 2, 4], [n, c * s * s, h // s, w // s]
    moved = net.inner("Transpose", net.inner("Reshape", x, net.ints(blocks)), perm=order)
    net.give(layer, "Reshape", moved, net.ints(sizes))


def crop(net: Net, layer: CaffeLayer) -> None:
    """A blob cut to another one's sizes."""
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
    "Upsample": upsample,
    "Interp": interp,
    "Tile": tile,
    "Parameter": parameter,
    "Embed": embed,
    "Reorg": reorg,
    "Crop": crop,
}
