"""Caffe's layers of single elements: activations, powers, sums and products of blobs, biases."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from npuflow.frontends.caffe.network import CaffeOperatorError, Net, along, needed, one
from npuflow.frontends.caffe.parse import CaffeLayer


def unary(kind: str, net: Net, layer: CaffeLayer) -> None:
    """One function of each element."""
    net.give(layer, kind, net.values[layer.bottoms[0]])


def swish(net: Net, layer: CaffeLayer) -> None:
    """x * sigmoid(x)."""
    x = net.values[layer.bottoms[0]]
    net.give(layer, "Mul", x, net.inner("Sigmoid", x))


def relu(net: Net, layer: CaffeLayer) -> None:
    """With or without a negative slope."""
    slope = float(one(layer.table("relu_param"), "negative_slope", 0.0))
    if slope:
        net.give(layer, "LeakyRelu", net.values[layer.bottoms[0]], alpha=slope)
    else:
        unary("Relu", net, layer)


def relu6(net: Net, layer: CaffeLayer) -> None:
    """Between 0 and a threshold."""
    top = float(one(layer.table("relu6_param"), "threshold", 6.0))
    ends = [net.constant(np.float32(v)) for v in (0.0, top)]
    net.give(layer, "Clip", net.values[layer.bottoms[0]], *ends)


def prelu(net: Net, layer: CaffeLayer) -> None:
    """A negative slope for each channel, or one."""
    slope = needed(layer, 1)[0].reshape(-1)
    rank = len(net.shape(layer.bottoms[0]))
    shaped = slope.reshape(-1, *(1,) * (rank - 2)) if slope.size > 1 else slope
    net.give(layer, "PRelu", net.values[layer.bottoms[0]], net.constant(shaped, "slope"))


def elu(net: Net, layer: CaffeLayer) -> None:
    """With any alpha."""
    net.give(
        layer, "Elu", net.values[layer.bottoms[0]], alpha=float(one(layer.table("elu_param"), "alpha", 1.0))
    )


def power(net: Net, layer: CaffeLayer) -> None:
    """(shift + scale * x) ^ power."""
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


def eltwise(net: Net, layer: CaffeLayer) -> None:
    """Sums with coefficients, products or maxima of two or more blobs."""
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


def exponential(net: Net, layer: CaffeLayer) -> None:
    """base ^ (shift + scale * x); -1 stands for e."""
    gain, scale, shift = _base(layer, "exp_param")
    x = linear(net, net.values[layer.bottoms[0]], gain * scale, gain * shift)
    net.give(layer, "Exp", x)


def logarithm(net: Net, layer: CaffeLayer) -> None:
    """The logarithm of shift + scale * x to the base; -1 stands for e."""
    gain, scale, shift = _base(layer, "log_param")
    x = linear(net, net.values[layer.bottoms[0]], scale, shift)
    if gain == 1.0:
        net.give(layer, "Log", x)
    else:
        net.give(layer, "Mul", net.inner("Log", x), net.constant(np.float32(1 / gain)))


def _base(layer: CaffeLayer, name: str) -> tuple[float, float, float]:
    """The logarithm of the base, the scale and the shift."""
    given = layer.table(name)
    base, scale, shift = (
        float(one(given, n, d)) for n, d in (("base", -1.0), ("scale", 1.0), ("shift", 0.0))
    )
    if base != -1.0 and base <= 0:
        raise CaffeOperatorError(f"with the base {base:g}")
    return (1.0 if base == -1.0 else math.log(base)), scale, shift


def linear(net: Net, x: str, scale: float, shift: float) -> str:
    """scale * x + shift, without the steps that change nothing."""
    if scale != 1.0:
        x = net.inner("Mul", x, net.constant(np.float32(scale)))
    return net.inner("Add", x, net.constant(np.float32(shift))) if shift else x


def threshold(net: Net, layer: CaffeLayer) -> None:
    """1 above the threshold, 0 up to it."""
    limit = float(one(layer.table("threshold_param"), "threshold", 0.0))
    above = net.inner("Greater", net.values[layer.bottoms[0]], net.constant(np.float32(limit)))
    net.give(layer, "Cast", above, to=1)


def clip(net: Net, layer: CaffeLayer) -> None:
    """Between two numbers."""
    given = layer.table("clip_param")
    ends = [net.constant(np.float32(one(given, name, 0.0))) for name in ("min", "max")]
    net.give(layer, "Clip", net.values[layer.bottoms[0]], *ends)


def bias(net: Net, layer: CaffeLayer) -> None:
    """Added numbers, of the layer or of the second blob, that lie along the axes from `axis` on."""
    given, like = layer.table("bias_param"), net.shape(layer.bottoms[0])
    x, axis = net.values[layer.bottoms[0]], int(one(given, "axis", 1))
    if len(layer.bottoms) > 1:
        net.give(layer, "Add", x, net.widened(layer.bottoms[1], axis, len(like)))
    else:
        net.give(layer, "Add", x, along(net, needed(layer, 1)[0], axis, like))


def axpy(net: Net, layer: CaffeLayer) -> None:
    """A factor for each channel times a blob, plus another (squeeze and excitation)."""
    factor, x, y = (net.values[b] for b in layer.bottoms)
    shaped = net.inner("Reshape", factor, net.ints([*net.shape(layer.bottoms[1])[:2], 1, 1]))
    net.give(layer, "Add", net.inner("Mul", x, shaped), y)


ELEMENTS: dict[str, Callable[[Net, CaffeLayer], None]] = {
    "ReLU": relu,
    "ReLU6": relu6,
    "PReLU": prelu,
    "ELU": elu,
    "Power": power,
    "Eltwise": eltwise,
    "Swish": swish,
    "Exp": exponential,
    "Log": logarithm,
    "Threshold": threshold,
    "Clip": clip,
    "Bias": bias,
    "Axpy": axpy,
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
