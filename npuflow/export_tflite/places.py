"""Where the largest and smallest elements are: places of elements, whole numbers in 32 bits."""

from __future__ import annotations

from npuflow.export_tflite.builder import NHWC, PLAIN, TYPE_INT32, LiteBuilder, LiteRefusal, codes_of
from npuflow.export_tflite.forms import LiteLayer, form


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
