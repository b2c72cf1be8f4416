"""Images at another size: LiteRT's own resizing where it takes the program's places, else look-ups."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuflow.export_tflite.builder import NHWC, STEP, LiteBuilder, LiteRefusal
from npuflow.export_tflite.forms import LiteLayer, form
from npuflow.frontends.tflite.schema import Codes
from npuflow.ir.types import Array

# Align corners, half pixel centres: how LiteRT may find the place of a pixel, the usual way first.
NEAREST = ((False, False), (True, False), (False, True))
LINEAR = ((False, True), (True, False), (False, False))
PLACE_BITS = 10  # of a place between two pixels in LiteRT
WEIGHT = 1 << 14  # what stands for 1 in a constant of 16 bits


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
