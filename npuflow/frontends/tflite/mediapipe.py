"""Reads MediaPipe's custom operators that have an equivalent.
A transposed convolution with a bias, pooling that keeps places and its reverse, resampling at computed
places. All of them work on floats.

Source: google-ai-edge/mediapipe, mediapipe/util/tflite/operations/*.cc (results and paddings); their options
are structures of TensorFlow Lite's c/builtin_op_data.h, int32 fields in order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np

from npuflow.frontends.tflite.network import ACTIVATIONS, NCHW, TfliteBuilder, TfliteOperatorError
from npuflow.frontends.tflite.schema import CUSTOM_OPTIONS, Operator
from npuflow.frontends.tflite.spatial import bias, padding, weight

PADDING_SAME, PADDING_VALID = 1, 2               # TfLitePadding
UNPOOL = "MaxUnpooling2D"


def fields(operator: Operator, count: int) -> tuple[int, ...]:
    """The first fields of an operator's options."""
    raw: bytes = operator.options.get(CUSTOM_OPTIONS, b"")
    if len(raw) < 4 * count:
        raise TfliteOperatorError(f"its options have {len(raw)} bytes instead of {4 * count}")
    found = struct.unpack_from(f"<{count}i", raw)
    if found[0] not in (PADDING_SAME, PADDING_VALID) or min(found[1:5]) < 1:
        raise TfliteOperatorError(f"its options are {list(found)}, which is no padding with strides")
    return found


def floats(builder: TfliteBuilder, operator: Operator) -> None:
    for index in (*operator.inputs, *operator.outputs):
        if index >= 0 and builder.activation(builder.tensor(index)) is not None:
            raise TfliteOperatorError("of codes (MediaPipe's own computes with floats alone)")


def transposed_with_bias(builder: TfliteBuilder, operator: Operator) -> None:
    """Convolution2DTransposeBias: image, kernel [out, height, width, in], bias."""
    floats(builder, operator)
    same, right, down = fields(operator, 3)
    x, w = operator.inputs[:2]
    kernel, strides = builder.tensor(w).shape[1:3], [down, right]
    total = [
        max(0, taps - (size - 1) % stride - 1) if same == PADDING_SAME else 0
        for taps, size, stride in zip(kernel, builder.tensor(x).shape[1:3], strides, strict=True)
    ]
    pads = [*(n // 2 for n in total), *(n - n // 2 for n in total)]
    inputs = [builder.value(x, NCHW), weight(builder, w, (3, 0, 1, 2)), *bias(builder, operator, 2)]
    result = builder.result(operator.outputs[0], NCHW)
    builder.node("ConvTranspose", inputs, result, kernel_shape=kernel, strides=strides, pads=pads)


def pool_with_places(builder: TfliteBuilder, operator: Operator) -> None:
    """MaxPoolingWithArgmax2D: the largest value of every window, and its place in the window. The places are
    those of ONNX, in the whole image, so that only the reverse operator can read them."""
    floats(builder, operator)
    values, places = operator.outputs
    same, right, down, width, height, active = fields(operator, 6)
    readers = {
        f"{o.name} {o.custom}".rstrip()
        for o in builder.source.operators
        if places in o.inputs and o.custom != UNPOOL
    }
    if readers or places in builder.source.outputs:
        said = ", ".join(sorted(readers)) or "an output of the network"
        raise TfliteOperatorError(f"whose places are read by {said}, not by {UNPOOL}")
    if active and active not in ACTIVATIONS:
        raise TfliteOperatorError(f"activation function {active}")
    sizes = builder.tensor(operator.inputs[0]).shape[1:3]
    pads = padding(sizes, (height, width), (down, right), (1, 1), same == PADDING_SAME)
    found = builder.free(f"{builder.origin}:places")
    builder.many(
        "MaxPool", [builder.value(operator.inputs[0], NCHW)], [builder.result(values, NCHW, active), found],
        kernel_shape=[height, width], strides=[down, right], pads=pads,
    )
    builder.forms[places] = {NCHW: found}


def unpool(builder: TfliteBuilder, operator: Operator) -> None:
    """MaxUnpooling2D: every value back at its place, zeros elsewhere."""
    floats(builder, operator)
    values, places = operator.inputs
    maker = next((o for o in builder.source.operators if places in o.outputs), None)
    same, right, down, width, height = fields(operator, 5)
    shape = builder.tensor(operator.outputs[0]).shape
    if maker is None or maker.custom != "MaxPoolingWithArgmax2D":
        raise TfliteOperatorError("whose places are not those of MaxPoolingWithArgmax2D")
    before = builder.tensor(maker.inputs[0]).shape
    if fields(maker, 5) != (same, right, down, width, height) or before != shape:
        raise TfliteOperatorError(
            f"to {list(shape)} by other windows than those that pooled {list(before)}"
        )
    if (down, right) != (height, width):
        raise TfliteOperatorError("of windows that overlap or leave gaps")
    image = [shape[0], shape[3], shape[1], shape[2]]
    inputs = [builder.value(values, NCHW), builder.forms[places][NCHW], builder.shape(image)]
    builder.node(
        "MaxUnpool", inputs, builder.result(operator.outputs[0], NCHW), kernel_shape=[height, width],
        strides=[down, right],
    )


def resampler(builder: TfliteBuilder, operator: Operator) -> None:
    """Resampler: an image at places [batch, height, width, 2] in pixels, x before y; zeros outside."""
    floats(builder, operator)
    source, warp = operator.inputs
    height, width = builder.tensor(source).shape[1:3]
    if min(height, width) < 2:
        raise TfliteOperatorError("of a single row or column")
    scale = builder.constant(np.array([2 / (width - 1), 2 / (height - 1)]))
    scaled = builder.node("Mul", [builder.value(warp), scale])
    grid = builder.node("Sub", [scaled, builder.constant(1.0)])
    builder.node(
        "GridSample", [builder.value(source, NCHW), grid], builder.result(operator.outputs[0], NCHW),
        mode="linear", padding_mode="zeros", align_corners=1,
    )


CUSTOM: dict[str, Callable[[TfliteBuilder, Operator], None]] = {
    "Convolution2DTransposeBias": transposed_with_bias,
    "MaxPoolingWithArgmax2D": pool_with_places,
    UNPOOL: unpool,
    "Resampler": resampler,
}
OTHERS: Sequence[str] = (
    "Landmarks2TransformMatrix", "Landmarks2TransformMatrixV2", "RoIToTransformMatrix", "TransformLandmarks",
    "TransformTensor", "TransformTensorBilinear",
)
"""MediaPipe's operators that npuflow has no equivalent for."""
