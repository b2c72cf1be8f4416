"""Convolutions, products of matrices, norms, pooling, resizing, attention: each as one operator."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from npuflow.frontends.torch.adaptive import adaptive
from npuflow.frontends.torch.elements import Converter
from npuflow.frontends.torch.network import TorchNetwork, TorchOperatorError, TorchValue
from npuflow.frontends.torch.shapes import result


def option(args: list[Any], kwargs: dict[str, Any], place: int, name: str, default: Any) -> Any:
    """An argument by place or name."""
    given = args[place] if len(args) > place else kwargs.get(name, default)
    return default if given is None else given


def pair(value: Any, count: int) -> list[int]:
    """A number for every dimension."""
    rows = list(value) if isinstance(value, list | tuple) else [value]
    return [int(v) for v in (rows * count if len(rows) == 1 else rows)]


def conv(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    x, w = args[0], args[1]
    rank = len(net.shape(w)) - 2
    strides, dilations = (
        pair(option(args, kwargs, i, n, 1), rank) for i, n in ((3, "stride"), (5, "dilation"))
    )
    padding, group = option(args, kwargs, 4, "padding", 0), option(args, kwargs, 6, "groups", 1)
    kernel = list(net.shape(w)[2:])
    if isinstance(padding, str):
        wide = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilations, kernel, strict=True)]
        pads = [*(v // 2 for v in wide), *(v - v // 2 for v in wide)]
    else:
        pads = pair(padding, rank) * 2
    return batch_of_one(
        net,
        x,
        rank,
        lambda image: net.apply(
            "Conv",
            image,
            w,
            option(args, kwargs, 2, "bias", None),
            kernel_shape=kernel,
            strides=strides,
            dilations=dilations,
            pads=pads,
            group=int(group),
        ),
    )


def batch_of_one(net: TorchNetwork, x: Any, rank: int, made: Any) -> TorchValue:
    """Torch takes images without a batch; ONNX does not."""
    if len(net.shape(x)) == rank + 2:
        return made(x)
    return net.apply("Squeeze", made(net.apply("Unsqueeze", x, net.ints([0]))), net.ints([0]))


def deconv(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    x, w = args[0], args[1]
    rank = len(net.shape(w)) - 2
    strides, pads, more = (
        pair(option(args, kwargs, i, n, d), rank)
        for i, n, d in ((3, "stride", 1), (4, "padding", 0), (5, "output_padding", 0))
    )
    return net.apply(
        "ConvTranspose",
        x,
        w,
        option(args, kwargs, 2, "bias", None),
        kernel_shape=list(net.shape(w)[2:]),
        strides=strides,
        pads=pads * 2,
        output_padding=more,
        group=int(option(args, kwargs, 6, "groups", 1)),
        dilations=pair(option(args, kwargs, 7, "dilation", 1), rank),
    )


def convolution(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    """The general form, with a flag for transposed ones."""
    x, w, b, stride, padding, dilation, transposed, more, group = args[:9]
    if transposed:
        return deconv(net, node, [x, w, b, stride, padding, more, group, dilation], {})
    return conv(net, node, [x, w, b, stride, padding, dilation, group], {})


def linear(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    x, w, b = args[0], args[1], option(args, kwargs, 2, "bias", None)
    if len(net.shape(x)) == 2:
        return net.apply("Gemm", x, w, b, transB=1)
    if "dequantize" in str(getattr(node.args[1], "target", "")):  # codes of a weight go with its own layout
        rows = net.apply("Reshape", x, net.ints([-1, net.shape(w)[1]]))
        return net.apply("Reshape", net.apply("Gemm", rows, w, b, transB=1), net.ints(result(node)))
    weight = w.t() if isinstance(w, net.torch.Tensor) else net.apply("Transpose", w, perm=[1, 0])
    if isinstance(w, net.torch.Tensor):
        net.kept.append(weight)
        net.names[id(weight)] = net.names.get(id(w), "")
    product = net.apply("MatMul", x, weight)
    return product if b is None else net.apply("Add", product, b)


def addmm(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply(
        "Gemm",
        args[1],
        args[2],
        args[0],
        alpha=float(kwargs.get("alpha", 1)),
        beta=float(kwargs.get("beta", 1)),
    )


def matmul(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("MatMul", args[0], args[1])


def einsum(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("Einsum", *args[1], equation=args[0])


def batch_norm(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    x, scale, shift, mean, var = args[:5]
    no_training = node.target.__name__.startswith("_native_batch_norm_legit_no_training")
    training = False if no_training else args[5]
    if training or mean is None or var is None:
        raise TorchOperatorError("statistics of the batch (export the module in evaluation mode)")
    count = len(mean)
    scale = net.torch.ones(count) if scale is None else scale
    shift = net.torch.zeros(count) if shift is None else shift
    epsilon = args[6] if no_training else args[7]
    made = net.apply("BatchNormalization", x, scale, shift, mean, var, epsilon=float(epsilon))
    return [made, None, None] if no_training else made  # type: ignore[return-value]


def layer_norm(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    x, sizes = args[0], args[1]
    weight, bias = option(args, kwargs, 2, "weight", None), option(args, kwargs, 3, "bias", None)
    weight = net.torch.ones(sizes) if weight is None else weight
    made = net.apply(
        "LayerNormalization",
        x,
        weight,
        bias,
        axis=-len(sizes),
        epsilon=float(option(args, kwargs, 4, "eps", 1e-5)),
    )
    return [made, None, None] if node.target.__name__.startswith("native") else made


def rms_norm(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    x, sizes = args[0], args[1]
    weight = option(args, kwargs, 2, "weight", None)
    epsilon = option(args, kwargs, 3, "eps", float(np.finfo(np.float32).eps))
    weight = net.torch.ones(sizes) if weight is None else weight
    return net.apply("RMSNormalization", x, weight, version=23, axis=-len(sizes), epsilon=float(epsilon))


def group_norm(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    x, groups = args[0], int(args[1])
    count = net.shape(x)[1]
    weight, bias = option(args, kwargs, 2, "weight", None), option(args, kwargs, 3, "bias", None)
    return net.apply(
        "GroupNormalization",
        x,
        net.torch.ones(count) if weight is None else weight,
        net.torch.zeros(count) if bias is None else bias,
        num_groups=groups,
        epsilon=float(option(args, kwargs, 4, "eps", 1e-5)),
    )


def instance_norm(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    x, weight, bias, _, _, own = args[:6]
    if not own:
        raise TorchOperatorError("running statistics")
    count = net.shape(x)[1]
    return net.apply(
        "InstanceNormalization",
        x,
        net.torch.ones(count) if weight is None else weight,
        net.torch.zeros(count) if bias is None else bias,
        epsilon=float(args[7]),
    )


def pool(
    kind: str, rank: int, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]
) -> TorchValue:
    kernel = pair(args[1], rank)
    strides = pair(option(args, kwargs, 2, "stride", None) or kernel, rank)
    more: dict[str, Any] = {}
    if kind == "MaxPool":
        more["dilations"] = pair(option(args, kwargs, 4, "dilation", 1), rank)
        ceil = option(args, kwargs, 5, "ceil_mode", False)
    else:
        ceil = option(args, kwargs, 4, "ceil_mode", False)
        more["count_include_pad"] = int(option(args, kwargs, 5, "count_include_pad", True))
        if option(args, kwargs, 6, "divisor_override", None):
            raise TorchOperatorError("divisor_override")
    pads = pair(option(args, kwargs, 3, "padding", 0), rank)
    return net.apply(
        kind, args[0], kernel_shape=kernel, strides=strides, pads=pads * 2, ceil_mode=int(bool(ceil)), **more
    )


def max_pool_with_indices(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    return [pool("MaxPool", 2, net, node, args, kwargs), None]


def resize(mode: str, net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    """`upsample_*2d`: the size of the result is known."""
    shape = [int(s) for s in node.meta["val"].shape]
    corners = mode != "nearest" and bool(args[2] if len(args) > 2 else kwargs.get("align_corners"))
    more: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    if mode == "nearest":
        more["nearest_mode"] = "floor"
    else:
        more["coordinate_transformation_mode"] = "align_corners" if corners else "half_pixel"
    if mode == "cubic":
        more["cubic_coeff_a"] = -0.75
    return net.apply("Resize", args[0], "", "", net.ints(shape), **more)


def attention(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    q, k, v = args[:3]
    mask, causal = (
        option(args, kwargs, 3, "attn_mask", None),
        bool(option(args, kwargs, 5, "is_causal", False)),
    )
    scale = kwargs.get("scale")
    more = {} if scale is None else {"scale": float(scale)}
    if len(net.shape(q)) == 4 and net.shape(q)[1] == net.shape(k)[1]:
        return net.apply("Attention", q, k, v, mask, version=23, is_causal=int(causal), **more)
    raise TorchOperatorError(f"queries of shape {list(net.shape(q))}, keys of {list(net.shape(k))}")


def embedding(net: TorchNetwork, node: Any, args: list[Any], kwargs: dict[str, Any]) -> TorchValue:
    return net.apply("Gather", args[0], args[1], axis=0)


LAYERS: dict[str, Converter] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), conv),
    "convolution": convolution,
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), deconv),
    "linear": linear,
    "addmm": addmm,
    **dict.fromkeys(("matmul", "bmm", "mm"), matmul),
    "einsum": einsum,
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), batch_norm),
    **dict.fromkeys(("layer_norm", "native_layer_norm"), layer_norm),
    "rms_norm": rms_norm,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    **{f"max_pool{n}d": partial(pool, "MaxPool", n) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": partial(pool, "AveragePool", n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": partial(adaptive, "AveragePool", n) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": partial(adaptive, "MaxPool", n) for n in (1, 2, 3)},
    "_adaptive_avg_pool2d": partial(adaptive, "AveragePool", 2),
    "max_pool2d_with_indices": max_pool_with_indices,
    "upsample_nearest2d": partial(resize, "nearest"),
    "upsample_bilinear2d": partial(resize, "linear"),
    "upsample_bicubic2d": partial(resize, "cubic"),
    "scaled_dot_product_attention": attention,
    "embedding": embedding,
}
