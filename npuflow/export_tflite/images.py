"""Sliding windows and images: padding as TFLite has it, pooling, resizing, blocks of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from npuflow.export_tflite.builder import (
    NHWC,
    STEP,
    LiteBuilder,
    LiteRefusal,
    activation,
    clamped,
    codes_of,
    narrow,
)
from npuflow.export_tflite.forms import LiteLayer, form
from npuflow.frontends.tflite.schema import Codes
from npuflow.ir.types import Array
from npuflow.ir.windows import Window, windows

SAME, VALID = 0, 1
# Align corners, half pixel centres: how LiteRT may find the place of a pixel, the usual way first.
NEAREST = ((False, False), (True, False), (False, True))
LINEAR = ((False, True), (True, False), (False, False))
PLACE_BITS = 10  # of a place between two pixels in LiteRT
WEIGHT = 1 << 14  # what stands for 1 in a constant of 16 bits


def spec_of(layer: LiteLayer) -> tuple[Window, ...]:
    return windows(
        layer.site.shape(0)[2:],
        layer.get("kernel_shape"),
        layer.get("strides", ()),
        layer.get("dilations", ()),
        layer.get("pads", ()),
        layer.get("auto_pad", "NOTSET"),
        bool(layer.get("ceil_mode", 0)),
    )


def two(spec: Sequence[Window], name: str) -> tuple[int, int]:
    """A field of the windows over two dimensions; images of one row for one."""
    found = [int(getattr(w, name)) for w in spec]
    if len(found) > 2:
        raise LiteRefusal("three dimensions in space")
    return (1 if len(found) == 1 else found[0]), found[-1]


def behind(w: Window) -> int:
    """Rows that the last window needs beyond the image."""
    return (w.out - 1) * w.stride + w.span - w.size - w.before


def same(w: Window) -> bool:
    total = max((w.out - 1) * w.stride + w.span - w.size, 0)
    return w.out == -(-w.size // w.stride) and w.before == total // 2


def valid(w: Window) -> bool:
    return w.before == 0 and w.out == (w.size - w.span) // w.stride + 1


def padded(
    b: LiteBuilder, layer: LiteLayer, spec: Sequence[Window], bits: int, lowest: bool = False
) -> tuple[int, int]:
    """The input of a layer with windows, behind a PAD where neither SAME nor VALID is its padding. `lowest`:
    with the least code instead of zero."""
    x = b.read(layer.x, NHWC, bits)
    if all(map(valid, spec)):
        return x, VALID
    if all(map(same, spec)):
        return x, SAME
    pads = [(w.before, max(behind(w), 0)) for w in spec]
    if min(min(p) for p in pads) < 0:
        raise LiteRefusal("negative padding")
    pads = [(0, 0)] * (3 - len(spec)) + pads + [(0, 0)]
    tensor = b.tensors[x]
    shape = [d + sum(p) for d, p in zip(tensor.shape, pads, strict=True)]
    made = b.tensor(f"{tensor.name}:padded", shape, tensor.dtype, tensor.codes)
    assert tensor.codes is not None
    least = int(np.iinfo(tensor.dtype).min)
    if lowest and tensor.codes.zero[0] != least:
        fill = np.array([least], tensor.dtype)
        value = b.tensor(f"{tensor.name}:least", (1,), tensor.dtype, tensor.codes, fill)
        b.add("PADV2", [x, b.ints(np.array(pads), "pads"), value], [made])
    else:
        b.add("PAD", [x, b.ints(np.array(pads), "pads")], [made])
    return made, VALID


def pool(b: LiteBuilder, layer: LiteLayer, name: str, x: int, padding: int, spec: Sequence[Window]) -> None:
    """A pool keeps the scale of its input."""
    fused, bounds = activation(layer.site)
    codes = b.tensors[x].codes
    own, _ = codes_of(layer.site.out_quant, layer.y)
    if codes != own:
        fused, bounds = 0, clamped(layer.site)
    bits = 16 if b.tensors[x].dtype == "int16" else 8
    b.give(
        layer.y,
        name,
        [x],
        NHWC,
        bits,
        codes=codes,
        bounds=bounds,
        Padding=padding,
        StrideH=two(spec, "stride")[0],
        StrideW=two(spec, "stride")[1],
        FilterHeight=two(spec, "kernel")[0],
        FilterWidth=two(spec, "kernel")[1],
        FusedActivationFunction=fused,
    )


@form("MaxPool")
def max_pool(b: LiteBuilder, layer: LiteLayer) -> None:
    spec = spec_of(layer)
    if any(w.dilation != 1 for w in spec):
        raise LiteRefusal("a pool with dilation")
    pool(b, layer, "MAX_POOL_2D", *padded(b, layer, spec, b.width(layer.site), lowest=True), spec)


@form("GlobalMaxPool")
def global_max_pool(b: LiteBuilder, layer: LiteLayer) -> None:
    spec = windows(layer.site.shape(0)[2:], layer.site.shape(0)[2:])
    pool(b, layer, "MAX_POOL_2D", b.read(layer.x, NHWC, b.width(layer.site)), VALID, spec)


@form("AveragePool")
def average_pool(b: LiteBuilder, layer: LiteLayer) -> None:
    """As a depthwise convolution where the result has a scale of its own: AVERAGE_POOL_2D has the input's."""
    site, spec, bits = layer.site, spec_of(layer), b.width(layer.site)
    if any(w.dilation != 1 for w in spec):
        raise LiteRefusal("a pool with dilation")
    inside = all(w.before == 0 and behind(w) <= 0 for w in spec)
    counted = bool(layer.get("count_include_pad", 0))
    if not inside and counted and any(behind(w) > w.after for w in spec):
        raise LiteRefusal("windows that reach beyond the padding")
    if not inside and not counted and not all(map(same, spec)):
        raise LiteRefusal("an average over windows that leave the image, with padding that is not SAME")
    if codes_of(site.quant(0), layer.x) == codes_of(site.out_quant, layer.y) and not (counted and not inside):
        x, padding = padded(b, layer, spec, bits)
        pool(b, layer, "AVERAGE_POOL_2D", x, padding, spec)
        return
    if not inside and not counted:
        pool(b, layer, "AVERAGE_POOL_2D", finer(b, b.read(layer.x, NHWC, bits)), SAME, spec)
        return
    x, padding = padded(b, layer, spec, bits)
    area, channels = prod(w.kernel for w in spec), site.shape(0)[1]
    ones = np.ones((1, *two(spec, "kernel"), channels), np.int8)
    held = b.tensor(
        f"{layer.y}:mean", ones.shape, "int8", Codes((1.0 / area,) * channels, (0,) * channels, 3), ones
    )
    fused, bounds = activation(site)
    b.give(
        layer.y,
        "DEPTHWISE_CONV_2D",
        [x, held, no_bias(b, layer, channels, 1.0 / area, bits)],
        NHWC,
        bits,
        bounds=bounds,
        Padding=padding,
        StrideH=two(spec, "stride")[0],
        StrideW=two(spec, "stride")[1],
        DepthMultiplier=1,
        FusedActivationFunction=fused,
    )


def finer(b: LiteBuilder, index: int) -> int:
    """Codes of 8 bits in 16 on a scale so fine that another rounding does not matter."""
    tensor = b.tensors[index]
    if tensor.codes is None or tensor.dtype != "int8":
        return index
    made = b.tensor(
        f"{tensor.name}:finer", tensor.shape, "int16", Codes((tensor.codes.scale[0] / STEP,), (0,), None)
    )
    b.add("QUANTIZE", [index], [made])
    return made


def no_bias(b: LiteBuilder, layer: LiteLayer, channels: int, scale: float, bits: int) -> int:
    dtype, unit = "int64" if bits == 16 else "int32", layer.site.quant(0).scale[0] * scale
    codes = Codes((unit,) * channels, (0,) * channels, 0)
    return b.tensor(f"{layer.y}:bias", (channels,), dtype, codes, np.zeros(channels, dtype))


@form("DepthToSpace", "SpaceToDepth")
def blocks(b: LiteBuilder, layer: LiteLayer) -> None:
    block, depth = int(layer.get("blocksize")), layer.call.op_type == "DepthToSpace"
    if depth and layer.get("mode", "DCR") != "DCR" and layer.site.out_shape[1] != 1:
        raise LiteRefusal("blocks in the order CRD")
    x = b.read(layer.x, NHWC)
    name = "DEPTH_TO_SPACE" if depth else "SPACE_TO_DEPTH"
    narrow(name, b.width(layer.site))
    b.give(layer.y, name, [x], NHWC, codes=b.tensors[x].codes, BlockSize=block)


# --- images at another size: LiteRT's own resizing where it takes the program's places, else look-ups


@form("Resize")
def resize(b: LiteBuilder, layer: LiteLayer) -> None:
    """LiteRT knows the ratio of the sizes only, and rounds the step between places to 2^-10 pixels: a scale
    of its own, another rounding, and steps that would drift from their places become look-ups."""
    site = layer.site
    if len(site.out_shape) != 4 or site.shape(0)[:2] != site.out_shape[:2]:
        raise LiteRefusal("a resize of other than the two dimensions in space")
    nearest = layer.get("mode", "nearest") == "nearest"
    tables, bits = (site.array("rows"), site.array("columns")), b.width(site)
    sizes = site.shape(0)[2:]
    for rule in NEAREST if nearest else LINEAR:
        if all(
            _nearest(table, size, rule) if nearest else _linear(table, size, rule, bits)
            for table, size in zip(tables, sizes, strict=True)
        ):
            name = "RESIZE_NEAREST_NEIGHBOR" if nearest else "RESIZE_BILINEAR"
            x, size = b.read(layer.x, NHWC), b.ints(site.out_shape[2:])
            options: dict[str, Any] = {"AlignCorners": rule[0], "HalfPixelCenters": rule[1]}
            b.give(layer.y, name, [x, size], NHWC, codes=b.tensors[x].codes, **options)
            return
    if nearest or not any(table[:, 3].any() for table in tables):
        _picked(b, layer, tables)
    else:
        _blended(b, layer, tables, bits)


def _nearest(table: Array, size: int, rule: tuple[bool, bool]) -> bool:
    """Whether LiteRT picks the same pixels; in float32, as it does."""
    corners, centres = rule
    out = len(table)
    ratio = (
        np.float32(size - 1) / np.float32(out - 1)
        if corners and out > 1
        else np.float32(size) / np.float32(out)
    )
    place = (np.arange(out, dtype=np.float32) + np.float32(0.5 if centres else 0)) * ratio
    index = np.floor(place.astype(np.float64) + 0.5) if corners else np.floor(place)
    return np.array_equal(np.clip(index, 0, size - 1), table[:, 0])


def _linear(table: Array, size: int, rule: tuple[bool, bool], bits: int) -> bool:
    """Whether LiteRT's places, integers in units of 2^-10 pixels, are at most half a code off."""
    corners, centres = rule
    out, one = len(table), 1 << PLACE_BITS
    taken = (size - 1, out - 1) if corners and out > 1 else (size, out)
    step = (one * taken[0] + taken[1] // 2) // taken[1]
    place = np.arange(out) * step + ((step // 2 - one // 2) if centres else 0)
    own = table.astype(np.float64)
    wanted = own[:, 0] + (own[:, 1] - own[:, 0]) * own[:, 3] / (own[:, 2] + own[:, 3])
    apart = np.abs(np.clip(place / one, 0, size - 1) - wanted)
    return float(apart.max(initial=0)) <= 2.0 ** -(bits + 1)


def _rows(b: LiteBuilder, x: int, axis: int, index: Array, name: str) -> int:
    """Rows or columns of a tensor by number; itself where all stay where they are."""
    tensor = b.tensors[x]
    if np.array_equal(index, np.arange(tensor.shape[axis])):
        return x
    shape = (*tensor.shape[:axis], len(index), *tensor.shape[axis + 1 :])
    made = b.tensor(name, shape, tensor.dtype, tensor.codes)
    b.add("GATHER", [x, b.ints(index, "indices")], [made], Axis=axis)
    return made


def _picked(b: LiteBuilder, layer: LiteLayer, tables: tuple[Array, Array]) -> None:
    x = _rows(b, b.read(layer.x, NHWC), 1, tables[0][:, 0], f"{layer.y}:rows")
    columns = b.ints(tables[1][:, 0], "indices")
    b.give(layer.y, "GATHER", [x, columns], NHWC, codes=b.tensors[x].codes, Axis=2)


def _blended(b: LiteBuilder, layer: LiteLayer, tables: tuple[Array, Array], bits: int) -> None:
    """The sum of two neighbours, each times its weight, first of rows, then of columns. In 16 bits, on a
    scale so fine that these roundings do not show in 8."""
    x = b.read(layer.x, NHWC, bits)
    codes = b.tensors[x].codes
    assert codes is not None
    if bits == 8:
        codes = Codes((codes.scale[0] / STEP,), (0,), None)
        fine = b.tensor(f"{layer.y}:fine", b.tensors[x].shape, "int16", codes)
        b.add("QUANTIZE", [x], [fine])
        x = fine
    blended = [axis for axis, table in enumerate(tables, 1) if table[:, 3].any()]
    for axis in {1, 2}.difference(blended):
        x = _rows(b, x, axis, tables[axis - 1][:, 0], f"{layer.y}:picked{axis}")
    options: dict[str, Any] = {"FusedActivationFunction": 0, "PotScaleInt16": False}
    for axis in blended:
        table = tables[axis - 1]
        parts = [_weighted(b, x, axis, table[:, [k, k + 2, 2, 3]], f"{layer.y}:{axis}{k}") for k in (0, 1)]
        if axis == blended[-1]:
            b.give(layer.y, "ADD", parts, NHWC, 16, codes=codes, **options)
            return
        x = b.tensor(f"{layer.y}:rows", b.tensors[parts[0]].shape, "int16", codes)
        b.add("ADD", parts, [x], **options)


def _weighted(b: LiteBuilder, x: int, axis: int, table: Array, name: str) -> int:
    """Rows `table[:, 0]` times weights `table[:, 1]`; the other columns add up to what stands for 1."""
    picked = _rows(b, x, axis, table[:, 0], f"{name}:picked")
    tensor = b.tensors[picked]
    shape = [1, 1, 1, 1]
    shape[axis] = len(table)
    share = table[:, 1] / (table[:, 2] + table[:, 3])
    held = np.rint(share * WEIGHT).astype(np.int16).reshape(shape)
    weight = b.tensor(f"{name}:weight", shape, "int16", Codes((1 / WEIGHT,), (0,), None), held)
    made = b.tensor(name, tensor.shape, "int16", tensor.codes)
    b.add("MUL", [picked, weight], [made], FusedActivationFunction=0)
    return made
