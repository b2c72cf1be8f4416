"""Sliding windows and images: padding as TFLite has it, pooling, resizing, blocks of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

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
from npuflow.ir.windows import Window, windows

SAME, VALID = 0, 1


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
