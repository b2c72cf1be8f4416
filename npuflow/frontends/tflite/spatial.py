"""Operators on images: convolutions, pooling, resizing, blocks of pixels. They are in NCHW."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from npuflow.frontends.tflite.network import NCHW, TfliteBuilder, TfliteOperatorError
from npuflow.frontends.tflite.schema import Codes, Operator
from npuflow.ir.types import Array

SAME = 0


def padding(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], same: bool
) -> list[int]:
    """ONNX pads of a window over an image: beginnings, then ends."""
    begins, ends = [], []
    for size, taps, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        wanted = (-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size
        total = max(wanted, 0) if same else 0
        begins.append(total // 2)
        ends.append(total - total // 2)
    return [*begins, *ends]


def weight(builder: TfliteBuilder, index: int, perm: Sequence[int]) -> str:
    """A constant kernel with its axes in ONNX's order."""
    held, tensor = builder.data(index), builder.tensor(index)
    if held is None:
        if index in builder.forms:
            return builder.node("Transpose", [builder.value(index)], perm=list(perm))
        raise TfliteOperatorError("weights that the network computes")
    codes = tensor.codes if index not in builder.folded else None
    if codes is not None and codes.axis is not None:
        codes = Codes(codes.scale, codes.zero, list(perm).index(codes.axis))
    return builder.stored(held.transpose(list(perm)), codes, tensor)


def bias(builder: TfliteBuilder, operator: Operator, place: int) -> list[str]:
    index = operator.inputs[place] if place < len(operator.inputs) else -1
    return [] if index < 0 else [builder.value(index)]


def window(
    builder: TfliteBuilder, operator: Operator, kernel: Sequence[int], dilated: bool = True
) -> dict[str, Any]:
    """Attributes of a window: strides, dilations, pads."""
    given, sizes = operator.options, builder.tensor(operator.inputs[0]).shape[1:3]
    strides = [given["StrideH"], given["StrideW"]]
    dilations = [given.get("DilationHFactor", 1), given.get("DilationWFactor", 1)] if dilated else [1, 1]
    pads = padding(sizes, kernel, strides, dilations, given["Padding"] == SAME)
    return {"strides": strides, "pads": pads, **({"dilations": dilations} if dilated else {})}


def conv(builder: TfliteBuilder, operator: Operator) -> None:
    x, w = operator.inputs[:2]
    shape = builder.tensor(w).shape
    inputs = [builder.value(x, NCHW), weight(builder, w, (0, 3, 1, 2)), *bias(builder, operator, 2)]
    result = builder.result(operator.outputs[0], NCHW, operator.options["FusedActivationFunction"])
    group = builder.tensor(x).shape[3] // shape[3]
    builder.node(
        "Conv", inputs, result, group=group, kernel_shape=shape[1:3], **window(builder, operator, shape[1:3])
    )


def depthwise(builder: TfliteBuilder, operator: Operator) -> None:
    x, w = operator.inputs[:2]
    shape = builder.tensor(w).shape
    inputs = [builder.value(x, NCHW), weight(builder, w, (3, 0, 1, 2)), *bias(builder, operator, 2)]
    result = builder.result(operator.outputs[0], NCHW, operator.options["FusedActivationFunction"])
    group = builder.tensor(x).shape[3]
    builder.node(
        "Conv", inputs, result, group=group, kernel_shape=shape[1:3], **window(builder, operator, shape[1:3])
    )


def transposed(builder: TfliteBuilder, operator: Operator) -> None:
    _, w, x = operator.inputs[:3]
    given, shape, sizes = (
        operator.options,
        builder.tensor(w).shape,
        builder.tensor(operator.outputs[0]).shape[1:3],
    )
    strides, kernel = [given["StrideH"], given["StrideW"]], shape[1:3]
    pads = padding(sizes, kernel, strides, [1, 1], given["Padding"] == SAME)
    reach = [(n - 1) * s + k for n, s, k in zip(builder.tensor(x).shape[1:3], strides, kernel, strict=True)]
    more = [
        size - (full - pads[i] - pads[i + 2]) for i, (size, full) in enumerate(zip(sizes, reach, strict=True))
    ]
    if min(more) < 0:                         # the size asked for ends earlier: what lies behind is cut off
        pads = [*pads[:2], *(p - min(m, 0) for p, m in zip(pads[2:], more, strict=True))]
    inputs = [builder.value(x, NCHW), weight(builder, w, (3, 0, 1, 2)), *bias(builder, operator, 3)]
    result = builder.result(operator.outputs[0], NCHW, given.get("FusedActivationFunction", 0))
    builder.node(
        "ConvTranspose", inputs, result, kernel_shape=kernel, strides=strides, pads=pads,
        output_padding=[max(m, 0) for m in more],
    )


def pool(kind: str, builder: TfliteBuilder, operator: Operator) -> None:
    given = operator.options
    kernel = [given["FilterHeight"], given["FilterWidth"]]
    result = builder.result(operator.outputs[0], NCHW, given["FusedActivationFunction"])
    more = window(builder, operator, kernel, dilated=False)
    builder.node(kind, [builder.value(operator.inputs[0], NCHW)], result, kernel_shape=kernel, **more)


def resize(builder: TfliteBuilder, operator: Operator) -> None:
    given, linear = operator.options, operator.name == "RESIZE_BILINEAR"
    sizes = builder.tensor(operator.outputs[0]).shape
    if given.get("AlignCorners"):
        place, near = "align_corners", "round_prefer_ceil"
    elif given.get("HalfPixelCenters"):
        place, near = "half_pixel", "round_prefer_ceil"
    else:
        place, near = "asymmetric", "floor"
    more = {"mode": "linear"} if linear else {"mode": "nearest", "nearest_mode": near}
    inputs = [
        builder.value(operator.inputs[0], NCHW),
        "",
        "",
        builder.shape([sizes[0], sizes[3], *sizes[1:3]]),
    ]
    builder.node(
        "Resize",
        inputs,
        builder.result(operator.outputs[0], NCHW),
        coordinate_transformation_mode=place,
        **more,
    )


def blocks(kind: str, builder: TfliteBuilder, operator: Operator) -> None:
    x, result = builder.value(operator.inputs[0], NCHW), builder.result(operator.outputs[0], NCHW)
    builder.node(kind, [x], result, blocksize=operator.options["BlockSize"])


def normalised(builder: TfliteBuilder, operator: Operator) -> None:
    given, x = operator.options, builder.value(operator.inputs[0], NCHW)
    size = 2 * given["Radius"] + 1
    result = builder.result(operator.outputs[0], NCHW)
    builder.node(
        "LRN", [x], result, size=size, bias=given["Bias"], alpha=given["Alpha"] * size, beta=given["Beta"]
    )


def space_to_batch(builder: TfliteBuilder, operator: Operator) -> None:
    """Pixels of every block, each as a sample of its own."""
    block = builder.ints(operator, 1, "blocks")
    pads = np.asarray(builder.ints(operator, 2, "paddings")).reshape(-1, 2)
    n, *shape = builder.tensor(operator.inputs[0]).shape
    count = len(block)
    x = builder.value(operator.inputs[0])
    rest = len(shape) - count
    if pads.any():
        x = builder.node(
            "Pad", [x, builder.shape([0, *pads[:, 0], *[0] * rest, 0, *pads[:, 1], *[0] * rest])]
        )
    sizes: Array = np.asarray(shape[:count]) + pads.sum(1)
    split = [n, *(int(v) for s, b in zip(sizes, block, strict=True) for v in (s // b, b)), *shape[count:]]
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2), *range(2 * count + 1, len(split))]
    x = builder.node("Transpose", [builder.node("Reshape", [x, builder.shape(split)])], perm=order)
    result = operator.outputs[0]
    builder.node("Reshape", [x, builder.shape(builder.tensor(result).shape)], builder.result(result))


def batch_to_space(builder: TfliteBuilder, operator: Operator) -> None:
    block = builder.ints(operator, 1, "blocks")
    crops = np.asarray(builder.ints(operator, 2, "crops")).reshape(-1, 2)
    n, *shape = builder.tensor(operator.inputs[0]).shape
    count, rest = len(block), shape[len(block):]
    x = builder.node(
        "Reshape",
        [builder.value(operator.inputs[0]), builder.shape([*block, n // int(np.prod(block)), *shape])],
    )
    pairs = [v for i in range(count) for v in (count + 1 + i, i)]
    x = builder.node("Transpose", [x], perm=[count, *pairs, *range(2 * count + 1, len(shape) + count + 1)])
    sizes = [s * b for s, b in zip(shape[:count], block, strict=True)]
    result = builder.result(operator.outputs[0])
    merged = [n // int(np.prod(block)), *sizes, *rest]
    if not crops.any():
        builder.node("Reshape", [x, builder.shape(merged)], result)
        return
    x = builder.node("Reshape", [x, builder.shape(merged)])
    ends = [size - end for size, end in zip(sizes, crops[:, 1].tolist(), strict=True)]
    bounds = [builder.shape(crops[:, 0].tolist()), builder.shape(ends), builder.shape(range(1, count + 1))]
    builder.node("Slice", [x, *bounds], result)


SPATIAL: dict[str, Callable[[TfliteBuilder, Operator], None]] = {
    "CONV_2D": conv,
    "DEPTHWISE_CONV_2D": depthwise,
    "TRANSPOSE_CONV": transposed,
    "AVERAGE_POOL_2D": partial(pool, "AveragePool"),
    "MAX_POOL_2D": partial(pool, "MaxPool"),
    "RESIZE_BILINEAR": resize,
    "RESIZE_NEAREST_NEIGHBOR": resize,
    "SPACE_TO_DEPTH": partial(blocks, "SpaceToDepth"),
    "DEPTH_TO_SPACE": partial(blocks, "DepthToSpace"),
    "LOCAL_RESPONSE_NORMALIZATION": normalised,
    "SPACE_TO_BATCH_ND": space_to_batch,
    "BATCH_TO_SPACE_ND": batch_to_space,
}
