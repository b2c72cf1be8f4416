"""Caffe's layers in ONNX's vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from npuflow.frontends.caffe.detection import DETECTION
from npuflow.frontends.caffe.network import CaffeOperatorError, Net, needed, one, pair
from npuflow.frontends.caffe.parse import CaffeLayer
from npuflow.frontends.caffe.shapes import SHAPES
from npuflow.ir.types import Array


def conv(net: Net, layer: CaffeLayer, transposed: bool = False) -> None:
    given = layer.table("convolution_param")
    x, group = net.values[layer.bottoms[0]], int(one(given, "group", 1))
    kernel = pair(given, "kernel_size", 0, "kernel")
    strides, pads, dilations = pair(given, "stride", 1), pair(given, "pad", 0), pair(given, "dilation", 1)
    biased = bool(one(given, "bias_term", True))
    if layer.kind == "DepthwiseConvolution" or layer.kind == "ConvolutionDepthwise":
        group = net.shape(layer.bottoms[0])[1]
    weight, *rest = needed(layer, 1 + biased)
    outputs, channels = int(one(given, "num_output", 0)), net.shape(layer.bottoms[0])[1]
    shape = (channels, outputs // group, *kernel) if transposed else (outputs, channels // group, *kernel)
    inputs = [x, net.constant(weight.reshape(shape), "weight")]
    if biased:
        inputs.append(net.constant(rest[0].reshape(-1), "bias"))
    net.give(
        layer,
        "ConvTranspose" if transposed else "Conv",
        *inputs,
        kernel_shape=kernel,
        strides=strides,
        group=group,
        pads=[*pads, *pads],
        dilations=dilations,
    )


def dense(net: Net, layer: CaffeLayer) -> None:
    given = layer.table("inner_product_param")
    axis, biased = int(one(given, "axis", 1)), bool(one(given, "bias_term", True))
    weight, *rest = needed(layer, 1 + biased)
    outputs = int(one(given, "num_output", 0))
    weight = weight.reshape(-1, outputs).T if one(given, "transpose", False) else weight.reshape(outputs, -1)
    shape = net.shape(layer.bottoms[0])
    axis %= len(shape)
    rows = int(np.prod(shape[:axis]))
    x = net.inner("Reshape", net.values[layer.bottoms[0]], net.ints([rows, weight.shape[1]]))
    inputs = [x, net.constant(weight, "weight")]
    if biased:
        inputs.append(net.constant(rest[0].reshape(-1), "bias"))
    if axis == 1:
        net.give(layer, "Gemm", *inputs, transB=1)
        return
    made = net.inner("Gemm", *inputs, transB=1)
    net.give(layer, "Reshape", made, net.ints([*shape[:axis], outputs]))


def pool(net: Net, layer: CaffeLayer) -> None:
    given, image = layer.table("pooling_param"), net.shape(layer.bottoms[0])[2:]
    kind = str(one(given, "pool", "MAX"))
    if kind not in ("MAX", "AVE", 0, 1, "0", "1"):
        raise CaffeOperatorError(f"pooling {kind}")
    largest = kind in ("MAX", "0")
    x = net.values[layer.bottoms[0]]
    if one(given, "global_pooling", False):
        net.give(layer, "GlobalMaxPool" if largest else "GlobalAveragePool", x)
        return
    kernel, strides, pads = (
        pair(given, "kernel_size", 0, "kernel"),
        pair(given, "stride", 1),
        pair(given, "pad", 0),
    )
    floor = one(given, "round_mode", "CEIL") == "FLOOR" or one(given, "ceil_mode", True) is False
    ends = []
    for size, k, s, p in zip(image, kernel, strides, pads, strict=True):
        over = size + 2 * p - k
        count = (over // s if floor else -(-over // s)) + 1
        if p and (count - 1) * s >= size + p:  # the last window must begin within the image
            count -= 1
        ends.append((count - 1) * s + k - size - p)
    if largest:
        net.give(
            layer,
            "MaxPool",
            x,
            kernel_shape=kernel,
            strides=strides,
            pads=[*pads, *(max(e, 0) for e in ends)],
        )
        return
    # Caffe divides by the window's part of the padded image, which ends where the stated padding does
    own = [min(p, max(e, 0)) for e, p in zip(ends, pads, strict=True)]
    padded = net.inner("Pad", x, net.ints([0, 0, *pads, 0, 0, *own])) if any((*pads, *own)) else x
    more = [max(e - p, 0) for e, p in zip(ends, pads, strict=True)]
    net.give(
        layer,
        "AveragePool",
        padded,
        kernel_shape=kernel,
        strides=strides,
        pads=[0, 0, *more],
        count_include_pad=0,
    )


def unary(kind: str, net: Net, layer: CaffeLayer) -> None:
    net.give(layer, kind, net.values[layer.bottoms[0]])


def plain(kind: str, net: Net, layer: CaffeLayer) -> None:
    """Exp and Log to the base e alone."""
    if layer.table(f"{layer.kind.lower()}_param"):
        raise CaffeOperatorError("with a base, scale or shift")
    unary(kind, net, layer)


def swish(net: Net, layer: CaffeLayer) -> None:
    x = net.values[layer.bottoms[0]]
    net.give(layer, "Mul", x, net.inner("Sigmoid", x))


def relu(net: Net, layer: CaffeLayer) -> None:
    slope = float(one(layer.table("relu_param"), "negative_slope", 0.0))
    if slope:
        net.give(layer, "LeakyRelu", net.values[layer.bottoms[0]], alpha=slope)
    else:
        unary("Relu", net, layer)


def relu6(net: Net, layer: CaffeLayer) -> None:
    top = float(one(layer.table("relu6_param"), "threshold", 6.0))
    ends = [net.constant(np.float32(v)) for v in (0.0, top)]
    net.give(layer, "Clip", net.values[layer.bottoms[0]], *ends)


def prelu(net: Net, layer: CaffeLayer) -> None:
    slope = needed(layer, 1)[0].reshape(-1)
    rank = len(net.shape(layer.bottoms[0]))
    shaped = slope.reshape(-1, *(1,) * (rank - 2)) if slope.size > 1 else slope
    net.give(layer, "PRelu", net.values[layer.bottoms[0]], net.constant(shaped, "slope"))


def elu(net: Net, layer: CaffeLayer) -> None:
    net.give(
        layer, "Elu", net.values[layer.bottoms[0]], alpha=float(one(layer.table("elu_param"), "alpha", 1.0))
    )


def power(net: Net, layer: CaffeLayer) -> None:
    given, x = layer.table("power_param"), net.values[layer.bottoms[0]]
    exponent, scale, shift = (
        float(one(given, n, d)) for n, d in (("power", 1.0), ("scale", 1.0), ("shift", 0.0))
    )
    parts = [("Mul", scale, 1.0), ("Add", shift, 0.0), ("Pow", exponent, 1.0)]
    steps = [(kind, value) for kind, value, none in parts if value != none]
    for kind, value in steps[:-1]:
        x = net.inner(kind, x, net.constant(np.float32(value)))
    if steps:
        net.give(layer, steps[-1][0], x, net.constant(np.float32(steps[-1][1])))
    else:
        net.give(layer, "Identity", x)


def batch_norm(net: Net, layer: CaffeLayer) -> None:
    mean, var, factor = needed(layer, 3)[:3]
    total = float(factor.reshape(-1)[0])
    scale = 1.0 / total if total else 0.0
    count = mean.size
    arrays = [np.ones(count), np.zeros(count), mean.reshape(-1) * scale, var.reshape(-1) * scale]
    given = [net.constant(a.astype(np.float32)) for a in arrays]
    epsilon = float(one(layer.table("batch_norm_param"), "eps", 1e-5))
    net.give(layer, "BatchNormalization", net.values[layer.bottoms[0]], *given, epsilon=epsilon)


def scale(net: Net, layer: CaffeLayer) -> None:
    given, x = layer.table("scale_param"), net.values[layer.bottoms[0]]
    axis, rank = int(one(given, "axis", 1)), len(net.shape(layer.bottoms[0]))

    def along(values: Array) -> str:
        shape = values.shape if values.ndim > 1 else (values.size,)
        return net.constant(values.reshape(*shape, *(1,) * (rank - axis % rank - len(shape))))

    if len(layer.bottoms) > 1:
        if one(given, "bias_term", False):
            raise CaffeOperatorError("a bias behind a scale that the network computes")
        other = net.shape(layer.bottoms[1])
        factor = net.inner(
            "Reshape", net.values[layer.bottoms[1]], net.ints([*other, *(1,) * (rank - axis - len(other))])
        )
        net.give(layer, "Mul", x, factor)
        return
    weight, *rest = needed(layer, 1 + bool(one(given, "bias_term", False)))
    if rest:
        net.give(layer, "Add", net.inner("Mul", x, along(weight)), along(rest[0]))
    else:
        net.give(layer, "Mul", x, along(weight))


def lrn(net: Net, layer: CaffeLayer) -> None:
    given = layer.table("lrn_param")
    if one(given, "norm_region", "ACROSS_CHANNELS") != "ACROSS_CHANNELS":
        raise CaffeOperatorError("within channels")
    net.give(
        layer,
        "LRN",
        net.values[layer.bottoms[0]],
        size=int(one(given, "local_size", 5)),
        alpha=float(one(given, "alpha", 1.0)),
        beta=float(one(given, "beta", 0.75)),
        bias=float(one(given, "k", 1.0)),
    )


def eltwise(net: Net, layer: CaffeLayer) -> None:
    given = layer.table("eltwise_param")
    kind = {"PROD": "Mul", "SUM": "Add", "MAX": "Max"}[str(one(given, "operation", "SUM"))]
    factors = [float(v) for v in given.get("coeff", [])] if kind == "Add" else []
    rows = [net.values[b] for b in layer.bottoms]
    for i, factor in enumerate(factors):
        if factor != 1.0:
            rows[i] = net.inner("Mul", rows[i], net.constant(np.float32(factor)))
    while len(rows) > 2:
        rows = [net.inner(kind, *rows[:2]), *rows[2:]]
    net.give(layer, kind, *rows)


def softmax(net: Net, layer: CaffeLayer) -> None:
    net.give(
        layer, "Softmax", net.values[layer.bottoms[0]], axis=int(one(layer.table("softmax_param"), "axis", 1))
    )


LAYERS: dict[str, Callable[[Net, CaffeLayer], None]] = {
    **SHAPES,
    **DETECTION,
    **dict.fromkeys(("Convolution", "DepthwiseConvolution", "ConvolutionDepthwise"), conv),
    "Deconvolution": partial(conv, transposed=True),
    "InnerProduct": dense,
    "Pooling": pool,
    "ReLU": relu,
    "ReLU6": relu6,
    "PReLU": prelu,
    "ELU": elu,
    "Power": power,
    "BatchNorm": batch_norm,
    "Scale": scale,
    "LRN": lrn,
    "Eltwise": eltwise,
    "Softmax": softmax,
    "Swish": swish,
    "Exp": partial(plain, "Exp"),
    "Log": partial(plain, "Log"),
    **{
        name: partial(unary, kind)
        for name, kind in (
            ("Sigmoid", "Sigmoid"),
            ("TanH", "Tanh"),
            ("AbsVal", "Abs"),
            ("BNLL", "Softplus"),
            ("Mish", "Mish"),
        )
    },
}
