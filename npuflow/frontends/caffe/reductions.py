"""Caffe's layers that sum, average or order the elements of a blob."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuflow.frontends.caffe.network import CaffeOperatorError, Net, one
from npuflow.frontends.caffe.parse import CaffeLayer

SMALL = 1e-6


def mean_variance(net: Net, layer: CaffeLayer) -> None:
    """Means subtracted and, if so stated, divided by the deviation, for each channel or for each image."""
    given, x, shape = layer.table("mvn_param"), net.values[layer.bottoms[0]], net.shape(layer.bottoms[0])
    groups = 1 if one(given, "across_channels", False) else shape[1]
    epsilon = float(one(given, "eps", 1e-9))
    flat = net.inner("Reshape", x, net.ints([shape[0], groups, -1]))
    if not one(given, "normalize_variance", True):
        made = net.inner("Sub", flat, net.inner("ReduceMean", flat, net.ints([2])))
    elif epsilon <= SMALL:  # sqrt(variance) + epsilon and sqrt(variance + epsilon^2) do not differ in float32
        ends = [net.constant(np.full(groups, value, np.float32)) for value in (1.0, 0.0)]
        made = net.inner("InstanceNormalization", flat, *ends, epsilon=max(epsilon**2, SMALL**2))
    else:
        centred = net.inner("Sub", flat, net.inner("ReduceMean", flat, net.ints([2])))
        variance = net.inner("ReduceMean", net.inner("Mul", centred, centred), net.ints([2]))
        deviation = net.inner("Add", net.inner("Sqrt", variance), net.constant(np.float32(epsilon)))
        made = net.inner("Div", centred, deviation)
    net.give(layer, "Reshape", made, net.ints(shape))


def arg_max(net: Net, layer: CaffeLayer) -> None:
    """Places of the largest elements as float numbers, or their values, or (without an axis) both."""
    given, x, shape = layer.table("argmax_param"), net.values[layer.bottoms[0]], net.shape(layer.bottoms[0])
    count, both = int(one(given, "top_k", 1)), bool(one(given, "out_max_val", False))
    axis = int(one(given, "axis", 1))
    if "axis" not in given:
        x = net.inner("Reshape", x, net.ints([shape[0], 1, -1]))
        axis = 2
    if count == 1 and not both:
        net.give(layer, "Cast", net.inner("ArgMax", x, axis=axis, keepdims=1), to=1)
        return
    values, places = (net.graph.free(f"{net.origin}:{name}") for name in ("values", "places"))
    net.graph.call("TopK", [x, net.ints([count])], [values, places], net.origin, axis=axis)
    if both and "axis" in given:
        net.give(layer, "Identity", values)
    elif both:
        net.give(layer, "Concat", net.inner("Cast", places, to=1), values, axis=1)
    else:
        net.give(layer, "Cast", places, to=1)


def reduction(net: Net, layer: CaffeLayer) -> None:
    """Sum, sum of magnitudes or squares, or mean, of all axes from `axis` on, times a factor."""
    given, shape = layer.table("reduction_param"), net.shape(layer.bottoms[0])
    name = str(one(given, "operation", "SUM"))
    kinds = {"SUM": "ReduceSum", "ASUM": "ReduceL1", "SUMSQ": "ReduceSumSquare", "MEAN": "ReduceMean"}
    if name not in kinds:
        raise CaffeOperatorError(f"operation {name}")
    first = int(one(given, "axis", 0)) % len(shape)
    factor = float(one(given, "coeff", 1.0))
    inputs = [net.values[layer.bottoms[0]], net.ints(range(first, len(shape)))]
    if factor == 1.0:
        net.give(layer, kinds[name], *inputs, keepdims=0)
    else:
        net.give(layer, "Mul", net.inner(kinds[name], *inputs, keepdims=0), net.constant(np.float32(factor)))


def pyramid(net: Net, layer: CaffeLayer) -> None:
    """Pooling into 1, 4, 16, ... windows, one behind the other."""
    given, shape = layer.table("spp_param"), net.shape(layer.bottoms[0])
    kind = {"MAX": "MaxPool", "AVE": "AveragePool"}.get(str(one(given, "pool", "MAX")))
    if kind is None:
        raise CaffeOperatorError("stochastic pooling")
    parts = []
    for level in range(int(one(given, "pyramid_height", 1))):
        bins = 1 << level
        kernel = [-(-size // bins) for size in shape[2:]]
        pads = [(k * bins - size + 1) // 2 for k, size in zip(kernel, shape[2:], strict=True)]
        more = [k * bins - size - p for k, size, p in zip(kernel, shape[2:], pads, strict=True)]
        counted = {} if kind == "MaxPool" else {"count_include_pad": 1}
        pooled = net.inner(
            kind,
            net.values[layer.bottoms[0]],
            kernel_shape=kernel,
            strides=kernel,
            pads=[*pads, *more],
            **counted,
        )
        parts.append(net.inner("Reshape", pooled, net.ints([shape[0], shape[1] * bins * bins])))
    net.give(layer, "Concat", *parts, axis=1)


def response_norm(net: Net, layer: CaffeLayer) -> None:
    """Across channels or within them."""
    given, x = layer.table("lrn_param"), net.values[layer.bottoms[0]]
    size, alpha = int(one(given, "local_size", 5)), float(one(given, "alpha", 1.0))
    beta, region = float(one(given, "beta", 0.75)), str(one(given, "norm_region", "ACROSS_CHANNELS"))
    if region in ("ACROSS_CHANNELS", "0"):
        bias = float(one(given, "k", 1.0))
        net.give(layer, "LRN", x, size=size, alpha=alpha, beta=beta, bias=bias)
        return
    sides = {"kernel_shape": [size] * 2, "pads": [(size - 1) // 2] * 4, "count_include_pad": 1}
    mean = net.inner("AveragePool", net.inner("Mul", x, x), **sides)
    weighted = net.inner("Mul", mean, net.constant(np.float32(alpha)))
    lifted = net.inner("Add", weighted, net.constant(np.float32(1.0)))
    net.give(layer, "Mul", x, net.inner("Pow", lifted, net.constant(np.float32(-beta))))


REDUCTIONS: dict[str, Callable[[Net, CaffeLayer], None]] = {
    "MVN": mean_variance,
    "ArgMax": arg_max,
    "Reduction": reduction,
    "SPP": pyramid,
    "LRN": response_norm,
}
