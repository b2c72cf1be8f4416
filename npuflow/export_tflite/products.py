"""Convolutions and products of matrices: weights symmetric in 8 bits per channel, biases in 32 or 64."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuflow.export_tflite.builder import (
    NHWC,
    PLAIN,
    LiteBuilder,
    LiteRefusal,
    activation,
    clamped,
    in_nhwc,
)
from npuflow.export_tflite.forms import LiteLayer, form
from npuflow.export_tflite.images import SAME, VALID, padded, spec_of, two
from npuflow.frontends.tflite.schema import Codes
from npuflow.ir.op import OpContext
from npuflow.ir.types import Array

INT32 = np.iinfo(np.int32)
TINY = float(np.finfo(np.float32).tiny)  # a scale must be positive in float32, also of a channel of zeros


def weight_codes(site: OpContext) -> tuple[Array, Array]:
    """Codes in 8 bits around 0, and the scale of each channel or one of all."""
    held, quant = site.consts[1], site.quant(1)
    if held is None:
        raise LiteRefusal("its weight is computed")
    if quant.group is not None:
        raise LiteRefusal("weights with scales by groups")
    if quant.bits > 8:
        raise LiteRefusal(f"weights of {quant.bits} bits: TFLite has at most 8")
    shift = 0 if quant.signed else 1 << (quant.bits - 1)
    if any(z != shift for z in quant.zero_point):
        raise LiteRefusal(
            "weights with a zero point: TFLite has symmetric ones ([quantize.weights] symmetric)"
        )
    return (held.astype(np.int16) - shift).astype(np.int8), np.asarray(quant.scale) * site.op.gain()


def weight(b: LiteBuilder, layer: LiteLayer, codes: Array, scale: Array, axis: int) -> int:
    quant = Codes(tuple(scale.tolist()), (0,) * scale.size, axis if scale.size > 1 else None)
    return b.tensor(layer.site.node.inputs[1], codes.shape, "int8", quant, codes)


def bias(b: LiteBuilder, layer: LiteLayer, scale: Array, channels: int, bits: int) -> list[int]:
    """The bias in units of the products; the shift of its own scale is done here. Convolutions want one."""
    site, codes, name = layer.site, np.zeros(channels, np.int64), f"{layer.y}:bias"
    if site.present(2):
        held, name = site.consts[2], site.node.inputs[2]
        assert held is not None
        codes = np.broadcast_to(held.astype(np.int64).reshape(-1) << site.param("bias_shift"), (channels,))
    if bits == 8 and (codes.min() < INT32.min or codes.max() > INT32.max):
        raise LiteRefusal("a bias beyond 32 bits")
    dtype, units = "int64" if bits == 16 else "int32", scale * site.quant(0).scale[0]
    units = np.maximum(units, TINY)
    quant = Codes(tuple(units.tolist()), (0,) * units.size, 0 if units.size > 1 else None)
    return [b.tensor(name, (channels,), dtype, quant, codes.astype(dtype))]


@form("Conv")
def conv(b: LiteBuilder, layer: LiteLayer) -> None:
    site, bits = layer.site, b.width(layer.site)
    codes, scale = weight_codes(site)
    spec, groups = spec_of(layer), int(layer.get("group", 1))
    fused, bounds = activation(site)
    codes = codes if len(spec) == 2 else codes[:, :, None]
    channels = codes.shape[0]
    x, padding = padded(b, layer, spec, bits)
    options: dict[str, Any] = {
        "Padding": padding,
        "StrideH": two(spec, "stride")[0],
        "StrideW": two(spec, "stride")[1],
        "DilationHFactor": two(spec, "dilation")[0],
        "DilationWFactor": two(spec, "dilation")[1],
        "FusedActivationFunction": fused,
    }
    if groups > 1 and codes.shape[1] == 1:
        held = np.ascontiguousarray(codes[:, 0].transpose(1, 2, 0)[None])
        inputs = [x, weight(b, layer, held, scale, 3), *bias(b, layer, scale, channels, bits)]
        options |= {"DepthMultiplier": channels // groups}
        b.give(layer.y, "DEPTHWISE_CONV_2D", inputs, NHWC, bits, bounds=bounds, **options)
        return
    held = np.ascontiguousarray(codes.transpose(0, 2, 3, 1))
    inputs = [x, weight(b, layer, held, scale, 0), *bias(b, layer, scale, channels, bits)]
    b.give(layer.y, "CONV_2D", inputs, NHWC, bits, bounds=bounds, **options)


@form("ConvTranspose")
def conv_transpose(b: LiteBuilder, layer: LiteLayer) -> None:
    """The full result, of which STRIDED_SLICE keeps what the pads do not cut off; SAME where that is its."""
    site, bits = layer.site, b.width(layer.site)
    codes, scale = weight_codes(site)
    rank = codes.ndim - 2
    if int(layer.get("group", 1)) != 1 or any(d != 1 for d in layer.get("dilations", ())):
        raise LiteRefusal("a transposed convolution with groups or dilation")
    codes = codes if rank == 2 else codes[:, :, None]
    held = np.ascontiguousarray(codes.transpose(1, 2, 3, 0))
    kernel, strides = held.shape[1:3], ((1,) * (2 - rank) + tuple(layer.get("strides")))
    pads = tuple(layer.get("pads"))
    before = (0,) * (2 - rank) + pads[:rank]
    y, x = in_nhwc(site.out_shape), in_nhwc(site.shape(0))
    same = all(
        -(-out // s) == size and front == max((size - 1) * s + k - out, 0) // 2
        for out, size, s, k, front in zip(y[1:3], x[1:3], strides, kernel, before, strict=True)
    )
    full = [
        max((size - 1) * s + k, front + out)
        for size, s, k, front, out in zip(x[1:3], strides, kernel, before, y[1:3], strict=True)
    ]
    whole = y if same else (y[0], *full, y[3])
    if not same and any(
        f != (size - 1) * s + k for f, size, s, k in zip(full, x[1:3], strides, kernel, strict=True)
    ):
        raise LiteRefusal("an output_padding beyond the full result")
    fused, bounds = activation(site)
    inputs = [b.ints(whole), weight(b, layer, held, scale, 0), b.read(layer.x, NHWC, bits)]
    inputs += bias(b, layer, scale, held.shape[0], bits)
    options = {
        "Padding": SAME if same else VALID,
        "StrideH": strides[0],
        "StrideW": strides[1],
        "FusedActivationFunction": fused,
    }
    if same or whole == y:
        b.give(layer.y, "TRANSPOSE_CONV", inputs, NHWC, bits, bounds=bounds, **options)
        return
    made = b.like(layer.y, whole, bits)
    b.add("TRANSPOSE_CONV", inputs, [made], **options)
    ends = [0, *before, 0], [y[0], *(f + o for f, o in zip(before, y[1:3], strict=True)), y[3]]
    b.give(
        layer.y,
        "STRIDED_SLICE",
        [made, *(b.ints(e) for e in ends), b.ints([1] * 4)],
        NHWC,
        bits,
        bounds=bounds,
        codes=b.tensors[made].codes,
    )


def connected(b: LiteBuilder, layer: LiteLayer, x: int, held: Array, scale: Array) -> None:
    """FULLY_CONNECTED over the last dimension; `held`: a row of weights per output."""
    bits = b.width(layer.site)
    fused, bounds = activation(layer.site)
    inputs = [x, weight(b, layer, np.ascontiguousarray(held), scale, 0)]
    inputs += bias(b, layer, scale, held.shape[0], bits)
    rank = len(layer.site.out_shape)
    b.give(
        layer.y,
        "FULLY_CONNECTED",
        inputs,
        PLAIN,
        bits,
        bounds=bounds,
        FusedActivationFunction=fused,
        KeepNumDims=rank > 2,
    )


def columns(b: LiteBuilder, layer: LiteLayer, rows: Array, bits: int) -> tuple[int, Array]:
    """The input of a product, and its weights' rows in the order of its columns."""
    if layer.x not in b.flat:
        return b.read(layer.x, PLAIN, bits), rows
    index, shape = b.flat[layer.x]
    if bits != layer.site.quant(0).bits:
        index = b.widened(index, f"{layer.x}:int16")
    image = rows.reshape(rows.shape[0], *shape)
    return index, np.moveaxis(image, 1, -1).reshape(rows.shape)


@form("Gemm")
def gemm(b: LiteBuilder, layer: LiteLayer) -> None:
    codes, scale = weight_codes(layer.site)
    if int(layer.get("transA", 0)):
        raise LiteRefusal("a Gemm whose first operand is transposed")
    connected(b, layer, *columns(b, layer, layer.site.op.rows(codes), b.width(layer.site)), scale)


@form("MatMul")
def matmul(b: LiteBuilder, layer: LiteLayer) -> None:
    site, bits = layer.site, b.width(layer.site)
    if site.consts[1] is not None and len(site.shape(1)) == 2:
        codes, scale = weight_codes(site)
        connected(b, layer, *columns(b, layer, codes.T, bits), scale)
        return
    other = site.node.inputs[1]
    sides = [
        b.read(layer.x, PLAIN, bits),
        batched(b, layer) if site.consts[1] is not None else b.read(other, PLAIN, bits),
    ]
    b.give(layer.y, "BATCH_MATMUL", sides, PLAIN, bits, bounds=clamped(site), AdjX=False, AdjY=False)


def batched(b: LiteBuilder, layer: LiteLayer) -> int:
    """Constant matrices, one for each index of the batch: on one scale."""
    codes, scale = weight_codes(layer.site)
    if scale.size > 1:
        raise LiteRefusal("a batch of constant matrices with scales per channel")
    return weight(b, layer, codes, scale, 0)
