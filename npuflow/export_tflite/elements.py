"""Operators that work element by element, functions of one number, softmax and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuflow.export_tflite.builder import (
    DTYPES,
    NHWC,
    PLAIN,
    TYPE_INT32,
    LiteBuilder,
    LiteRefusal,
    activation,
    bounds_of,
    clamped,
    codes_of,
    in_nhwc,
    narrow,
)
from npuflow.export_tflite.forms import LiteLayer, form
from npuflow.frontends.tflite.schema import Codes
from npuflow.ir.op import OpContext

BINARY = {"Add": "ADD", "Sub": "SUB", "Mul": "MUL"}
EXTREMES = {"Max": "MAXIMUM", "Min": "MINIMUM"}
# Functions whose result has a scale of its choice in TFLite, and those for which TFLite fixes it.
FUNCTIONS = {
    "HardSwish": "HARD_SWISH",
    "LeakyRelu": "LEAKY_RELU",
    "Gelu": "GELU",
    "Exp": "EXP",
    "Log": "LOG",
    "Abs": "ABS",
}
FIXED = {
    ("LOGISTIC", 8): (1 / 256, -128),
    ("LOGISTIC", 16): (1 / 32768, 0),
    ("TANH", 8): (1 / 128, 0),
    ("TANH", 16): (1 / 32768, 0),
    ("SOFTMAX", 8): (1 / 256, -128),
    ("SOFTMAX", 16): (1 / 32768, 0),
}


def fixed(name: str, bits: int) -> Codes:
    scale, zero = FIXED[name, bits]
    return Codes((scale,), (zero,), None)


def fixed_width(layer: LiteLayer, name: str, bits: int) -> int:
    """16 bits where the result's own scale is finer than the one that TFLite fixes for 8."""
    return 16 if layer.site.out_quant.scale[0] < FIXED[name, bits][0] * (1 - 1e-6) else bits


def operands(b: LiteBuilder, site: OpContext, bits: int) -> tuple[str, list[int]]:
    """All operands of an operator that broadcasts, in one layout and of one rank."""
    ids, rank = [i for i in site.node.inputs if i], len(site.out_shape)
    layout = b.layout(*ids)
    if layout == NHWC:
        return layout, [b.read(i, NHWC, bits, rank) for i in ids]
    return layout, [b.read(i, PLAIN, bits) for i in ids]


@form("Add", "Sub", "Mul")
def arithmetic(b: LiteBuilder, layer: LiteLayer) -> None:
    bits = b.width(layer.site)
    layout, sides = operands(b, layer.site, bits)
    fused, bounds = activation(layer.site)
    name = BINARY[layer.call.op_type]
    more: dict[str, Any] = {} if name == "MUL" else {"PotScaleInt16": False}
    b.give(layer.y, name, sides, layout, bits, bounds=bounds, FusedActivationFunction=fused, **more)


@form("Max", "Min")
def extremes(b: LiteBuilder, layer: LiteLayer) -> None:
    """All operands on the result's scale first; more than two, or one, are several operators or QUANTIZE."""
    layout, sides = operands(b, layer.site, b.width(layer.site))
    codes, _ = codes_of(layer.site.out_quant, layer.y)
    dtype = DTYPES[layer.site.out_quant.bits]
    sides, name = [requantised(b, x, codes, dtype) for x in sides], EXTREMES[layer.call.op_type]
    while len(sides) > 2:
        first, second, *rest = sides
        shape = np.broadcast_shapes(b.tensors[first].shape, b.tensors[second].shape)
        made = b.tensor(f"{layer.y}:first", shape, dtype, codes)
        b.add(name, [first, second], [made])
        sides = [made, *rest]
    b.give(layer.y, name if len(sides) == 2 else "QUANTIZE", sides, layout, bounds=clamped(layer.site))


def requantised(b: LiteBuilder, index: int, codes: Codes, dtype: str) -> int:
    tensor = b.tensors[index]
    if (tensor.codes, tensor.dtype) == (codes, dtype):
        return index
    made = b.tensor(f"{tensor.name}:scaled", tensor.shape, dtype, codes)
    b.add("QUANTIZE", [index], [made])
    return made


@form("Identity")
def identity(b: LiteBuilder, layer: LiteLayer) -> None:
    layout = b.layout(layer.x)
    x = b.read(layer.x, layout)
    b.give(layer.y, "QUANTIZE", [x], layout, bounds=clamped(layer.site))


@form("Relu", "Clip")
def clip(b: LiteBuilder, layer: LiteLayer) -> None:
    """A change of scale, then bounds in codes."""
    ends = layer.constant(1), layer.constant(2)
    real = (-np.inf, np.inf) if ends[0] is None else (float(ends[0].item()), np.inf)
    real = (real[0], np.inf if ends[1] is None else float(ends[1].item()))
    if layer.call.op_type == "Relu":
        real = (0.0, np.inf)
    own, layout = clamped(layer.site), b.layout(layer.x)
    lo, hi = bounds_of(real, layer.site.out_quant)
    bounds = (lo, hi) if own is None else (max(lo, own[0]), min(hi, own[1]))
    x = b.read(layer.x, layout)
    same = codes_of(layer.site.quant(0), layer.x) == codes_of(layer.site.out_quant, layer.y)
    if layer.call.op_type == "Relu" and layer.site.out_quant.bits == 8:
        b.give(layer.y, "RELU", [x], layout, bounds=own)
    elif same:
        shape = b.ints(b.tensors[x].shape)
        b.give(layer.y, "RESHAPE", [x, shape], layout, bounds=bounds, NewShape=b.tensors[x].shape)
    else:
        b.give(layer.y, "QUANTIZE", [x], layout, bounds=bounds)


@form(*FUNCTIONS)
def function(b: LiteBuilder, layer: LiteLayer) -> None:
    name, layout, bits = FUNCTIONS[layer.call.op_type], b.layout(layer.x), b.width(layer.site)
    narrow(name, bits)
    options: dict[str, Any] = {}
    if name == "LEAKY_RELU":
        options = {"Alpha": float(layer.get("alpha", 0.01))}
    elif name == "GELU":
        options = {"Approximate": layer.get("approximate", "none") == "tanh"}
    x = b.read(layer.x, layout, bits)
    b.give(layer.y, name, [x], layout, bits, bounds=clamped(layer.site), **options)


@form("Sigmoid", "Tanh")
def fixed_function(b: LiteBuilder, layer: LiteLayer) -> None:
    name, layout = "LOGISTIC" if layer.call.op_type == "Sigmoid" else "TANH", b.layout(layer.x)
    bits = fixed_width(layer, name, b.width(layer.site))
    x = b.read(layer.x, layout, bits)
    b.give(layer.y, name, [x], layout, bits, codes=fixed(name, bits), bounds=clamped(layer.site))


@form("QuickGelu")
def silu(b: LiteBuilder, layer: LiteLayer) -> None:
    """x times LOGISTIC of x: one rounding more than the table of the program."""
    if layer.get("alpha", 1.0) != 1.0:
        raise LiteRefusal("a Swish with alpha other than 1")
    layout, bits = b.layout(layer.x), b.width(layer.site)
    x, codes = b.read(layer.x, layout, bits), fixed("LOGISTIC", bits)
    share = b.tensor(f"{layer.y}:sigmoid", b.tensors[x].shape, b.tensors[x].dtype, codes)
    b.add("LOGISTIC", [x], [share])
    b.give(layer.y, "MUL", [x, share], layout, bits, bounds=clamped(layer.site))


@form("HardSigmoid")
def hard_sigmoid(b: LiteBuilder, layer: LiteLayer) -> None:
    """A depthwise convolution of one channel, alpha its weight and beta its bias, between 0 and 1."""
    layout, bits = b.layout(layer.x), b.width(layer.site)
    own, ends = clamped(layer.site), bounds_of((0.0, 1.0), layer.site.out_quant)
    bounds = ends if own is None else (max(own[0], ends[0]), min(own[1], ends[1]))
    x = b.read(layer.x, layout, bits)
    shape, scale = b.tensors[x].shape, float(layer.get("alpha", 0.2)) / 127
    unit = layer.site.quant(0).scale[0] * scale
    codes = np.full((1, 1, 1, 1), 127, np.int8)
    weight = b.tensor(f"{layer.y}:alpha", codes.shape, "int8", Codes((scale,), (0,), None), codes)
    dtype = "int64" if bits == 16 else "int32"
    bias = np.array([round(float(layer.get("beta", 0.5)) / unit)], dtype)
    held = b.tensor(f"{layer.y}:beta", (1,), dtype, Codes((unit,), (0,), None), bias)
    flat = b.reshaped(x, (1, 1, int(np.prod(shape)), 1))
    made = b.like(layer.y, b.tensors[flat].shape, bits)
    b.add(
        "DEPTHWISE_CONV_2D", [flat, weight, held], [made], Padding=1, StrideH=1, StrideW=1, DepthMultiplier=1
    )
    b.give(
        layer.y,
        "RESHAPE",
        [made, b.ints(shape)],
        layout,
        bits,
        codes=b.tensors[made].codes,
        bounds=bounds,
        NewShape=shape,
    )


@form("PRelu")
def prelu(b: LiteBuilder, layer: LiteLayer) -> None:
    narrow("PRELU", b.width(layer.site))
    layout, sides = operands(b, layer.site, 8)
    b.give(layer.y, "PRELU", sides, layout, bounds=clamped(layer.site))


@form("Softmax")
def softmax(b: LiteBuilder, layer: LiteLayer) -> None:
    """Over the last dimension: channels are that in one layout, the graph's last in the other."""
    rank, bits = len(layer.site.out_shape), b.width(layer.site)
    axis = int(layer.get("axis", -1)) % rank
    if axis != rank - 1 and not (axis == 1 and rank in (3, 4)):
        raise LiteRefusal(f"a softmax over dimension {axis} of {rank}")
    layout, bits = PLAIN if axis == rank - 1 else NHWC, fixed_width(layer, "SOFTMAX", bits)
    x = b.read(layer.x, layout, bits)
    b.give(layer.y, "SOFTMAX", [x], layout, bits, codes=fixed("SOFTMAX", bits), Beta=1.0)


@form("GlobalAveragePool", "ReduceMean", "ReduceSum", "ReduceMax")
def reduction(b: LiteBuilder, layer: LiteLayer) -> None:
    """A sum is a mean times its number of terms: LiteRT's reference kernel of SUM does not scale."""
    site, name = layer.site, "REDUCE_MAX" if layer.call.op_type == "ReduceMax" else "MEAN"
    rank, bits = len(site.shape(0)), b.width(layer.site)
    gone = site.op.reduced(rank)
    assert gone is not None
    keeps = len(site.out_shape) == rank
    layout = b.layout(layer.x) if keeps else PLAIN
    # of an image, channels stay the last: dropping its rows and columns gives the graph's own order
    drops = not keeps and rank == 4 and set(gone) == {2, 3} and b.layout(layer.x) == NHWC
    where = NHWC if drops else layout
    axes = [places(rank)[d] for d in gone] if where == NHWC else list(gone)
    x = b.read(layer.x, where, bits)
    codes = b.tensors[x].codes if name == "REDUCE_MAX" else None
    if layer.call.op_type == "ReduceSum":
        summed(b, layer, x, axes, layout, bits)
        return
    b.give(
        layer.y,
        name,
        [x, b.ints(axes, "axes")],
        layout,
        bits,
        codes=codes,
        bounds=clamped(site),
        KeepDims=keeps,
    )


def summed(b: LiteBuilder, layer: LiteLayer, x: int, axes: list[int], layout: str, bits: int) -> None:
    site, dtype = layer.site, b.tensors[x].dtype
    terms = int(np.prod([site.shape(0)[d] for d in site.op.reduced(len(site.shape(0))) or ()]))
    keeps = len(site.out_shape) == len(site.shape(0))
    shape = site.out_shape if layout == PLAIN else in_nhwc(site.out_shape)
    whole = b.computed(layer.y, bits)
    mean = b.tensor(f"{layer.y}:mean", shape, dtype, Codes((whole.scale[0] / terms,), whole.zero, None))
    b.add("MEAN", [x, b.ints(axes, "axes")], [mean], KeepDims=keeps)
    most = np.array([np.iinfo(dtype).max], dtype)
    factor = b.tensor(f"{layer.y}:terms", (1,), dtype, Codes((terms / int(most[0]),), (0,), None), most)
    b.give(layer.y, "MUL", [mean, factor], layout, bits, bounds=clamped(site), FusedActivationFunction=0)


def places(rank: int) -> tuple[int, ...]:
    """Where a dimension of the graph lies in the layout with channels last."""
    return (0, 3, 1, 2) if rank == 4 else (0, 3, 2)


@form("ArgMax", "ArgMin")
def extreme(b: LiteBuilder, layer: LiteLayer) -> None:
    """The dimension is gone in TFLite; the graph keeps it, with size 1. Over channels, an image stays in
    TFLite's order."""
    rank, name = len(layer.site.shape(0)), "ARG_MAX" if layer.call.op_type == "ArgMax" else "ARG_MIN"
    axis = int(layer.get("axis", 0)) % rank
    if layer.get("last", 0):
        raise LiteRefusal("the last place of several equal elements: TFLite has the first")
    over_channels = axis == 1 and rank in (3, 4) and b.layout(layer.x) == NHWC
    x = b.read(layer.x, NHWC if over_channels else PLAIN)
    tensor, out = b.tensors[x], layer.site.out_shape
    if tensor.dtype != "int8":
        raise LiteRefusal(f"{name} has no kernel of 16 bits")
    along = 3 if over_channels else axis
    shape = tuple(d for k, d in enumerate(tensor.shape) if k != along)
    found = b.tensor(layer.y if shape == out else f"{layer.y}:place", shape, "int32")
    b.add(name, [x, b.ints([along], "axis")], [found], OutputType=TYPE_INT32)
    b.whole[layer.y] = found if shape == out else b.tensor(layer.y, out, "int32")
    if shape != out:
        b.reshape(found, b.whole[layer.y])


@form("TopK")
def top(b: LiteBuilder, layer: LiteLayer) -> None:
    """Of the last dimension, the largest first; of equal elements the one in front."""
    site, rank = layer.site, len(layer.site.shape(0))
    if int(layer.get("axis", -1)) % rank != rank - 1 or not layer.get("largest", 1):
        raise LiteRefusal("TFLite has the largest elements of the last dimension only")
    x = b.read(layer.x, PLAIN)
    tensor, values, positions = b.tensors[x], *site.node.outputs
    quant = site.outputs[0].quant
    if quant is not None and values and codes_of(quant, values)[0] != tensor.codes:
        raise LiteRefusal("elements on another scale than what they are taken from")
    shape = site.outputs[0].type.shape
    held = b.tensor(values or f"{layer.x}:largest", shape, tensor.dtype, tensor.codes)
    found = b.tensor(positions or f"{layer.x}:places", shape, "int32")
    b.add("TOPK_V2", [x, b.ints([int(layer.get("k"))], "k")], [held, found])
    if values:
        b.alias(values, PLAIN, held)
    if positions:
        b.whole[positions] = found
