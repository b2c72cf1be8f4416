"""Convolutions over volumes. They are in NCDHW, with a transposition at each side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from npuflow.frontends.tflite.network import PLAIN, TfliteBuilder
from npuflow.frontends.tflite.schema import Operator
from npuflow.frontends.tflite.spatial import SAME, bias, padding, weight

INTO, OUT_OF = (0, 4, 1, 2, 3), (0, 2, 3, 4, 1)


def conv(builder: TfliteBuilder, operator: Operator) -> None:
    x, w = operator.inputs[:2]
    strides, dilations = _along(operator, "Stride{}"), _along(operator, "Dilation{}Factor")
    shape, sizes = builder.tensor(w).shape, builder.tensor(x).shape[1:4]
    pads = padding(sizes, shape[:3], strides, dilations, operator.options["Padding"] == SAME)
    inputs = [_turned(builder, x), weight(builder, w, (4, 3, 0, 1, 2)), *bias(builder, operator, 2)]
    group = builder.tensor(x).shape[4] // shape[3]
    made = builder.node(
        "Conv", inputs, group=group, kernel_shape=shape[:3], strides=strides, dilations=dilations, pads=pads
    )
    _back(builder, operator, made)


def transposed(builder: TfliteBuilder, operator: Operator) -> None:
    _, w, x = operator.inputs[:3]
    strides, dilations = _along(operator, "Stride{}"), _along(operator, "Dilation{}Factor")
    shape, sizes = builder.tensor(w).shape, builder.tensor(operator.outputs[0]).shape[1:4]
    pads = padding(sizes, shape[:3], strides, dilations, operator.options["Padding"] == SAME)
    reach = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(builder.tensor(x).shape[1:4], strides, shape[:3], dilations, strict=True)
    ]
    more = [
        size - (full - pads[i] - pads[i + 3]) for i, (size, full) in enumerate(zip(sizes, reach, strict=True))
    ]
    pads = [*pads[:3], *(p - min(m, 0) for p, m in zip(pads[3:], more, strict=True))]
    inputs = [_turned(builder, x), weight(builder, w, (4, 3, 0, 1, 2)), *bias(builder, operator, 3)]
    made = builder.node(
        "ConvTranspose",
        inputs,
        kernel_shape=shape[:3],
        strides=strides,
        dilations=dilations,
        pads=pads,
        output_padding=[max(m, 0) for m in more],
    )
    _back(builder, operator, made)


def _along(operator: Operator, name: str) -> Sequence[int]:
    """An option of each axis."""
    return [int(operator.options[name.format(axis)]) for axis in "DHW"]


def _turned(builder: TfliteBuilder, index: int) -> str:
    return builder.node("Transpose", [builder.value(index)], perm=INTO)


def _back(builder: TfliteBuilder, operator: Operator, made: str) -> None:
    activation = operator.options.get("FusedActivationFunction", 0)
    result = builder.result(operator.outputs[0], PLAIN, activation)
    builder.node("Transpose", [made], result, perm=OUT_OF)


VOLUMES: dict[str, Callable[[TfliteBuilder, Operator], None]] = {
    "CONV_3D": conv,
    "CONV_3D_TRANSPOSE": transposed,
}
