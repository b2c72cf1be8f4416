"""Overlapping frames of a signal, a window and a product by a constant matrix are a convolution.

TensorFlow cuts frames by a look-up of constant places (`tf.signal.frame`); the convolution reads the signal
once, where the frames are several times as large.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, maker, users
from npuflow.ir.types import Array
from npuflow.rules import RULES, Change, Refusal
from npuflow.rules._match import VIEWS, attribute, matrix_of, plain_float
from npuflow.rules._parts import Decomposition, Parts


@dataclass(frozen=True)
class _Frames:
    """`count` frames of a signal of one dimension in `source`: the first begins at `begin`, each `step`
    behind the one before."""

    source: str
    begin: int
    step: int
    count: int


@RULES.entry
class RecogniseFrames(Decomposition):
    """The signal is taken in blocks of one step: a block is the channels of a place, and a frame a window of
    several of them."""

    order = 18
    triggers = ("matmul", "gemm")
    makes = ("conv", "reshape", "transpose", "pad", "slice")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if not plain_float(graph, node) or matrix_of(graph, node) is None:
            return None
        return super().rewrite(graph, node)

    def spelled(self, parts: Parts) -> tuple[str, ...] | None:
        matrix = matrix_of(parts.graph, parts.node)
        assert matrix is not None
        found = _windowed(parts.graph, parts.node, len(matrix))
        if found is None:
            return None
        frames, window = found
        bias = parts.number(2)
        if parts.input(2) and (bias is None or bias.size != matrix.shape[1]):
            return None
        size, step = len(matrix), frames.step
        taps = -(-size // step)
        length = (frames.count - 1 + taps) * step
        signal = parts.reshape(frames.source, (prod(parts.shape(frames.source)),))
        end = min(frames.begin + length, parts.shape(signal)[0])
        signal = parts.slice(signal, 0, frames.begin, end)
        if end - frames.begin < length:
            signal = parts.op("pad", (signal,), pads=(0, length - end + frames.begin))
        blocks = parts.reshape(signal, (1, length // step, step))
        rows = np.zeros((taps * step, matrix.shape[1]))
        rows[:size] = matrix * window[:, None]
        weight = rows.reshape(taps, step, -1).transpose(2, 1, 0)
        more = () if bias is None else (parts.const(bias.reshape(-1), "bias"),)
        y = parts.op(
            "conv", (parts.transpose(blocks, (0, 2, 1)), parts.const(weight, "waves"), *more),
            kernel_shape=(taps,), strides=(1,), dilations=(1,), pads=(0, 0), group=1,
            clip=parts.node.op.clip,
        )
        return (parts.reshape(parts.transpose(y, (0, 2, 1)), parts.shape(parts.node.outputs[0])),)


def _windowed(graph: Graph, node: Node, size: int) -> tuple[_Frames, Array] | None:
    """The frames behind the first operand of a product, and what each is multiplied by. Products alone read
    what lies between, so that nothing is left of it."""
    value, window = node.inputs[0], np.ones(size)
    while (above := maker(graph, value)) is not None and _for_products(graph, value):
        if kind(above) == "host:gather":              # fewer places are copied on the NPU
            frames = _frames(graph, above, size)
            return None if frames is None else (frames, window)
        if kind(above) == "mul" and graph.type(value).shape[-1] == size and above.op.clip is None:
            held = [graph.const(one) for one in above.inputs]
            rows = [one for one in held if one is not None]
            if len(rows) != 1 or rows[0].size not in (1, size) or rows[0].size != prod(rows[0].shape[-1:]):
                return None
            window = window * rows[0].reshape(-1)
            value = above.inputs[0 if held[0] is None else 1]
        elif kind(above) in VIEWS:
            value = above.inputs[0]
        else:
            return None
    return None


def _for_products(graph: Graph, value: str) -> bool:
    read = {kind(user) for user in users(graph, value)}
    return value not in graph.outputs and read <= {"matmul", "gemm", "mul", *VIEWS}


def _frames(graph: Graph, node: Node, size: int) -> _Frames | None:
    """What a look-up of constant places takes, if that is frames of `size` numbers at equal steps."""
    shape = graph.type(node.inputs[0]).shape
    places, axis = graph.const(node.inputs[1]), attribute(node, "axis", 0) % len(shape)
    if places is None:
        return None
    width = prod(shape[axis + 1 :])
    if prod(shape[:axis]) != 1 or size % width or places.size * width % size or places.size * width <= size:
        return None
    rows = places.reshape(-1, size // width).astype(np.int64)
    rows = np.where(rows < 0, rows + shape[axis], rows)
    step = int(rows[1, 0] - rows[0, 0])
    wanted = rows[0, 0] + step * np.arange(len(rows))[:, None] + np.arange(rows.shape[1])
    if step < 1 or not np.array_equal(rows, wanted):
        return None
    return _Frames(node.inputs[0], int(rows[0, 0]) * width, step * width, len(rows))
