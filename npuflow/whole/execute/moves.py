"""Operators that only move data, between tensors in any layout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np

from npuflow.ir.codes import encode
from npuflow.ir.moves import Move, dense
from npuflow.ir.op import OpContext
from npuflow.ir.types import Array
from npuflow.kernels.opcode import Step
from npuflow.whole.execute.layout import BatchTensor


def moved(
    site: OpContext, moves: Sequence[Move], inputs: Sequence[BatchTensor], outputs: Sequence[BatchTensor]
) -> list[Step]:
    """The steps of a mover; AssertionError where a copy follows no dimensions of its tensors."""
    if not moves:
        return [partial(_reshaped, outputs[0].logical, inputs[0].logical)]
    steps: list[Step] = []
    for move in moves:
        out = outputs[move.output]
        if move.source is None:
            quant = site.outputs[move.output].quant
            assert quant is not None
            code = int(encode(move.value, quant))
            (sink,) = _views(move, [(out, move.dst_offset, move.dst_strides)])
            steps.append(partial(np.copyto, sink, np.asarray(code, sink.dtype)))
            continue
        sides = [
            (out, move.dst_offset, move.dst_strides), (inputs[move.source], move.src_offset, move.src_strides)
        ]
        sink, source = _views(move, sides)
        steps.append(partial(np.copyto, sink, source))
    return steps


def _reshaped(sink: Array, source: Array) -> None:
    """The same elements in C order, in another shape."""
    if sink.shape == source.shape:
        np.copyto(sink, source)
    else:
        np.copyto(sink, np.ascontiguousarray(source).reshape(sink.shape))


def _views(move: Move, sides: Sequence[tuple[BatchTensor, int, tuple[int, ...]]]) -> list[Array]:
    """What a copy meets of every tensor, as views of one shape [samples, ...]. Steps are those of dense
    tensors: each becomes one along a dimension, after dimensions that were merged are parted again."""
    parts: list[tuple[int, tuple[int, ...]]] = [
        (size, tuple(strides[i] for _, _, strides in sides)) for i, size in enumerate(move.dims)
    ]
    starts = [list(_place(tensor, offset)) for tensor, offset, _ in sides]
    done: list[tuple[int, list[tuple[int, int]]]] = []
    while parts:
        size, strides = parts.pop(0)
        if size == 1:
            continue
        axes = [_axis(side[0], step) for side, step in zip(sides, strides, strict=True)]
        room = min(
            _room(side[0], axis, step, start[axis], size)
            for side, (axis, step), start in zip(sides, axes, starts, strict=True)
        )
        if room < size:
            assert room > 1 and size % room == 0, "a copy that leaves its dimension"
            wider = tuple(step * room for step in strides)
            parts[:0] = [(size // room, wider), (room, strides)]
            continue
        done.append((size, axes))
    for k, side in enumerate(sides):
        _check(side[0], starts[k], [(size, axes[k]) for size, axes in done])
    every = [[(size, axes[k]) for size, axes in done] for k in range(len(sides))]
    return [_view(side[0], start, axes) for side, start, axes in zip(sides, starts, every, strict=True)]


def _place(tensor: BatchTensor, offset: int) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(offset, tensor.layout.shape)) if offset else (0,) * len(
        tensor.layout.shape
    )


def _axis(tensor: BatchTensor, step: int) -> tuple[int, int]:
    """The dimension that a step of a dense tensor follows, and how many of its elements it passes."""
    shape = tensor.layout.shape
    if step == 0:
        return 0, 0
    for axis, stride in enumerate(dense(shape)):
        if shape[axis] > 1 and abs(step) >= stride and step % stride == 0:
            return axis, step // stride
    raise AssertionError("a copy that follows no dimension")


def _room(tensor: BatchTensor, axis: int, step: int, start: int, size: int) -> int:
    """How many steps stay in the dimension, at most `size`."""
    if step == 0:
        return size
    extent = tensor.layout.shape[axis]
    return min(size, (extent - 1 - start) // step + 1 if step > 0 else start // -step + 1)


def _check(tensor: BatchTensor, start: list[int], axes: Sequence[tuple[int, tuple[int, int]]]) -> None:
    """The whole copy stays in every dimension."""
    low, high = list(start), list(start)
    for size, (axis, count) in axes:
        if count:
            low[axis] += min(0, (size - 1) * count)
            high[axis] += max(0, (size - 1) * count)
    inside = all(a >= 0 and b < n for a, b, n in zip(low, high, tensor.layout.shape, strict=True))
    assert inside, "a copy that leaves its dimension"


def _view(tensor: BatchTensor, start: list[int], axes: Sequence[tuple[int, tuple[int, int]]]) -> Array:
    steps, item = tensor.layout.strides, tensor.flat.itemsize
    at = sum(i * step for i, step in zip(start, steps, strict=True))
    samples = 1 if tensor.constant else tensor.flat.size // tensor.layout.size
    shape = (samples, *(size for size, _ in axes))
    strides = (tensor.sample * item, *(count * steps[axis] * item for _, (axis, count) in axes))
    assert prod(shape) > 0
    return np.ndarray(shape, tensor.flat.dtype, tensor.flat, at * item, strides)
