"""Operators that move data: reshaping, transposing, joining, cutting, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuflow.export_tflite.builder import NHWC, PLAIN, LiteBuilder, LiteRefusal, codes_of
from npuflow.export_tflite.elements import places
from npuflow.export_tflite.forms import LiteLayer, form
from npuflow.ir.op import Node


def by_layout(values: Sequence[int], layout: str, rank: int, missing: int) -> list[int]:
    """Numbers by dimension of the graph, in the order of a layout."""
    if layout == PLAIN:
        return [int(v) for v in values]
    found = [missing] * 4
    for d, place in enumerate(places(rank)):
        found[place] = int(values[d])
    return found


@form("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(b: LiteBuilder, layer: LiteLayer) -> None:
    """A flattened image that only products of matrices read keeps its channels last: weights are turned."""
    shape, out = layer.site.shape(0), layer.site.out_shape
    if layer.x in b.whole:
        b.whole[layer.y] = b.tensor(layer.y, out, "int32")
        b.reshape(b.whole[layer.x], b.whole[layer.y])
        return
    flattened = (
        len(shape) in (3, 4) and len(out) == 2 and out[0] == shape[0] and layer.y not in b.graph.outputs
    )
    readers = b.graph.consumers().get(layer.y, [])
    if (
        flattened
        and b.layout(layer.x) == NHWC
        and readers
        and all(by_columns(b, n, layer.y) for n in readers)
    ):
        x = b.read(layer.x, NHWC)
        b.flat[layer.y] = b.reshaped(x, out), shape[1:]
        return
    x = b.read(layer.x, PLAIN)
    b.give(layer.y, "RESHAPE", [x, b.ints(out)], codes=b.tensors[x].codes, NewShape=out)


def by_columns(b: LiteBuilder, node: Node, value_id: str) -> bool:
    """Whether a node is a product of that value's columns with constant weights."""
    site = b.graph.site(node)
    call = site.op.to_onnx(site)
    return (
        call.op_type in ("Gemm", "MatMul")
        and node.inputs[0] == value_id
        and site.consts[1] is not None
        and len(site.shape(1)) == 2
        and not call.attributes.get("transA")
    )


@form("Transpose")
def transpose(b: LiteBuilder, layer: LiteLayer) -> None:
    """From one layout to the other nothing moves: it is the same tensor."""
    perm, rank = tuple(layer.get("perm")), len(layer.site.out_shape)
    free = layer.y not in b.graph.outputs or layer.x not in b.graph.inputs
    if rank == 4 and free and perm == (0, 3, 1, 2) and not b.has(layer.x, NHWC):
        b.alias(layer.y, NHWC, b.read(layer.x, PLAIN))
        return
    if rank == 4 and free and perm == (0, 2, 3, 1) and b.layout(layer.x) == NHWC:
        b.alias(layer.y, PLAIN, b.read(layer.x, NHWC))
        return
    x = b.read(layer.x, PLAIN)
    b.give(layer.y, "TRANSPOSE", [x, b.ints(perm, "perm")], codes=b.tensors[x].codes)


@form("Concat")
def concat(b: LiteBuilder, layer: LiteLayer) -> None:
    layout, rank = b.layout(*layer.site.node.inputs), len(layer.site.out_shape)
    axis = int(layer.get("axis")) % rank
    sides = [b.read(i, layout) for i in layer.site.node.inputs]
    own, _ = codes_of(layer.site.out_quant, layer.y)
    if any(b.tensors[x].codes != own for x in sides):
        raise LiteRefusal("operands on scales of their own")
    at = places(rank)[axis] if layout == NHWC else axis
    b.give(layer.y, "CONCATENATION", sides, layout, Axis=at, FusedActivationFunction=0)


def cut(b: LiteBuilder, layer: LiteLayer, output: str, ranges: Sequence[tuple[int, int, int]]) -> None:
    """STRIDED_SLICE: first, behind the last, step, by dimension of the graph."""
    layout, rank = b.layout(layer.x), len(layer.site.shape(0))
    x = b.read(layer.x, layout)
    begin, end, step = (by_layout([r[k] for r in ranges], layout, rank, int(k > 0)) for k in range(3))
    backwards = sum(1 << d for d, (s, e) in enumerate(zip(step, end, strict=True)) if s < 0 and e < 0)
    inputs = [x, b.ints(begin, "begin"), b.ints(end, "end"), b.ints(step, "step")]
    b.give(output, "STRIDED_SLICE", inputs, layout, codes=b.tensors[x].codes, EndMask=backwards)


@form("Slice")
def slice_(b: LiteBuilder, layer: LiteLayer) -> None:
    shape = layer.site.shape(0)
    rows = [layer.constant(k) for k in range(1, 5)]
    ranges = [(0, d, 1) for d in shape]
    for start, end, axis, step in zip(*(np.asarray(r).reshape(-1).tolist() for r in rows), strict=True):
        size = shape[axis]
        stop = (None if end < -size else end) if step < 0 else max(end, -size)
        found = range(size)[slice(max(start, -size), stop, step)]
        ranges[axis] = (found.start, found.stop, step)
    cut(b, layer, layer.y, ranges)


@form("Split")
def split(b: LiteBuilder, layer: LiteLayer) -> None:
    shape, axis = layer.site.shape(0), int(layer.get("axis", 0)) % len(layer.site.shape(0))
    sizes, at = layer.constant(1), 0
    assert sizes is not None
    for size, output in zip(sizes.tolist(), layer.site.node.outputs, strict=True):
        if output:
            cut(
                b,
                layer,
                output,
                [(at, at + size, 1) if d == axis else (0, n, 1) for d, n in enumerate(shape)],
            )
        at += size


@form("Pad")
def pad(b: LiteBuilder, layer: LiteLayer) -> None:
    rank, pads = len(layer.site.shape(0)), layer.constant(1)
    assert pads is not None
    if int(pads.min()) < 0:
        raise LiteRefusal("negative padding")
    layout, mode = b.layout(layer.x), layer.get("mode", "constant")
    x = b.read(layer.x, layout)
    sides = [by_layout(half.tolist(), layout, rank, 0) for half in (pads[:rank], pads[rank:])]
    inputs = [x, b.ints(np.array(sides).T, "pads")]
    codes, tensor = b.tensors[x].codes, b.tensors[x]
    assert codes is not None
    if mode == "reflect":
        b.give(layer.y, "MIRROR_PAD", inputs, layout, codes=codes, Mode=0)
        return
    if mode != "constant":
        raise LiteRefusal(f"padding by mode {mode}")
    quant, fill = layer.site.out_quant, layer.site.param("fill")
    code = np.array([fill - codes_of(quant, layer.y)[1]], tensor.dtype)
    if code[0] == codes.zero[0]:
        b.give(layer.y, "PAD", inputs, layout, codes=codes)
    else:
        value = b.tensor(f"{layer.y}:value", (1,), tensor.dtype, codes, code)
        b.give(layer.y, "PADV2", [*inputs, value], layout, codes=codes)


@form("Gather")
def gather(b: LiteBuilder, layer: LiteLayer) -> None:
    indices = layer.constant(1)
    assert indices is not None
    x = b.read(layer.x, PLAIN)
    axis = int(layer.get("axis", 0)) % len(layer.site.shape(0))
    b.give(layer.y, "GATHER", [x, b.ints(indices, "indices")], codes=b.tensors[x].codes, Axis=axis)


@form("Lookup")
def lookup(b: LiteBuilder, layer: LiteLayer) -> None:
    """Rows of a table by whole numbers that are an input or places."""
    site, index = layer.site, layer.site.node.inputs[1]
    if index not in b.whole and index in b.graph.inputs:
        b.whole[index] = b.tensor(index, site.shape(1), "int32")
    if index not in b.whole or len(site.shape(1)) != 1:
        raise LiteRefusal("rows by numbers that are neither an input nor places of elements")
    at = rows_of(b, layer, b.whole[index], site.quant(1).lo < 0)
    x = b.read(layer.x, PLAIN)
    b.give(layer.y, "GATHER", [x, at], codes=b.tensors[x].codes, Axis=1)


def rows_of(b: LiteBuilder, layer: LiteLayer, index: int, signed: bool) -> int:
    """Whole numbers as rows: negative ones count from the end, and the last row stands for all outside."""
    shape, end = b.tensors[index].shape, layer.site.shape(0)[1]

    def made(name: str, *inputs: int, dtype: str = "int32", **options: Any) -> int:
        found = b.tensor(f"{layer.y}:{name.lower()}", shape, dtype)
        b.add(name, inputs, [found], **options)
        return found

    last = b.ints([end - 1], "last")
    if signed:
        zero, wrap = b.ints([0], "zero"), b.ints([int(layer.get("wrap") or end)], "wrap")
        behind = made("ADD", index, wrap, FusedActivationFunction=0)
        row = made("SELECT_V2", made("LESS", index, zero, dtype="bool"), behind, index)
        index = made("SELECT_V2", made("LESS", row, zero, dtype="bool"), last, row)
    return made("MINIMUM", index, last)


@form("Expand")
def expand(b: LiteBuilder, layer: LiteLayer) -> None:
    x = b.read(layer.x, PLAIN)
    b.give(layer.y, "BROADCAST_TO", [x, b.ints(layer.site.out_shape)], codes=b.tensors[x].codes)
