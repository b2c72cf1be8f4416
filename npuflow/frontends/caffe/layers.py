"""Caffe's layers in ONNX's vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from npuflow.frontends.caffe.detection import DETECTION
from npuflow.frontends.caffe.elements import ELEMENTS
from npuflow.frontends.caffe.network import CaffeOperatorError, Net, along, needed, one, pair
from npuflow.frontends.caffe.parse import CaffeLayer
from npuflow.frontends.caffe.reductions import REDUCTIONS
from npuflow.frontends.caffe.shapes import SHAPES


def conv(net: Net, layer: CaffeLayer, transposed: bool = False) -> None:
    """A convolution: grouped, depthwise, dilated or transposed."""
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
    """A dense layer of all axes from `axis` on."""
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
    """Pooling with Caffe's windows at the border; a second blob of a maximum is its mask."""
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
        sizes = [*pads, *(max(e, 0) for e in ends)]
        net.give(layer, "MaxPool", x, kernel_shape=kernel, strides=strides, pads=sizes)
        return
    if len(layer.tops) > 1:
        raise CaffeOperatorError("averages with a mask")
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


def batch_norm(net: Net, layer: CaffeLayer) -> None:
    """Mean and variance of the file, which a factor divides."""
    mean, var, factor = needed(layer, 3)[:3]
    total = float(factor.reshape(-1)[0])
    scale = 1.0 / total if total else 0.0
    count = mean.size
    arrays = [np.ones(count), np.zeros(count), mean.reshape(-1) * scale, var.reshape(-1) * scale]
    given = [net.constant(a.astype(np.float32)) for a in arrays]
    epsilon = float(one(layer.table("batch_norm_param"), "eps", 1e-5))
    net.give(layer, "BatchNormalization", net.values[layer.bottoms[0]], *given, epsilon=epsilon)


def own_batch_norm(net: Net, layer: CaffeLayer) -> None:
    """The form of SegNet and ENet (factor and shift), and of PSPNet (with mean and variance)."""
    factor, shift, *rest = (b.reshape(-1) for b in needed(layer, 2))
    mean, var = rest[:2] if len(rest) > 1 else (np.zeros_like(shift), np.ones_like(shift))
    epsilon = float(one(layer.table("bn_param"), "eps", 1e-5)) if len(rest) > 1 else 0.0
    given = [net.constant(a) for a in (factor, shift, mean, var)]
    net.give(layer, "BatchNormalization", net.values[layer.bottoms[0]], *given, epsilon=epsilon)


def scale(net: Net, layer: CaffeLayer) -> None:
    """A factor, of the layer or a second blob, and a bias."""
    given, x = layer.table("scale_param"), net.values[layer.bottoms[0]]
    axis, like = int(one(given, "axis", 1)), net.shape(layer.bottoms[0])
    biased, own = bool(one(given, "bias_term", False)), len(layer.bottoms) == 1
    held = needed(layer, own + biased)
    factor = along(net, held[0], axis, like) if own else net.widened(layer.bottoms[1], axis, len(like))
    if biased:
        net.give(layer, "Add", net.inner("Mul", x, factor), along(net, held[own], axis, like))
    else:
        net.give(layer, "Mul", x, factor)


def softmax(net: Net, layer: CaffeLayer) -> None:
    """Over one axis."""
    net.give(
        layer, "Softmax", net.values[layer.bottoms[0]], axis=int(one(layer.table("softmax_param"), "axis", 1))
    )


LAYERS: dict[str, Callable[[Net, CaffeLayer], None]] = {
    **SHAPES,
    **ELEMENTS,
    **REDUCTIONS,
    **DETECTION,
    **dict.fromkeys(("Convolution", "DepthwiseConvolution", "ConvolutionDepthwise"), conv),
    "Deconvolution": partial(conv, transposed=True),
    "InnerProduct": dense,
    "Pooling": pool,
    "BatchNorm": batch_norm,
    "BN": own_batch_norm,
    "Scale": scale,
    "Softmax": softmax,
}
