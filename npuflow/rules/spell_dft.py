"""DFT as a product with a matrix of cosines and sines, STFT as a convolution with a windowed one."""

from __future__ import annotations

import numpy as np

from npuflow.ir.queries import kind
from npuflow.ir.types import Array
from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts

_MOST = 1 << 24                           # elements of the matrix


@RULES.entry
class SpellDft(Decomposition):
    """Real and imaginary parts are the last dimension, as in ONNX."""

    triggers = ("host:dft", "host:stft")
    makes = ("matmul", "conv", "transpose", "reshape")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        return _whole(parts) if kind(parts.node) == "host:dft" else _short(parts)


def _whole(parts: Parts) -> tuple[str, ...] | str:
    x, shape = parts.input(0), parts.shape(parts.input(0))
    given = [parts.number(i) for i in (1, 2)]
    if any(parts.input(i + 1) and a is None for i, a in enumerate(given)):
        return "its length or its axis is not a constant"
    length, axes = given
    axis = int(axes.reshape(-1)[0]) if axes is not None else parts.integer("axis", -2)
    axis %= len(shape)
    inverse, onesided = bool(parts.integer("inverse", 0)), bool(parts.integer("onesided", 0))
    if axis == len(shape) - 1 or (inverse and onesided):
        return "an inverse of one side, or an axis of real and imaginary parts"
    count, parts_in = shape[axis], shape[-1]
    size = count if length is None else int(length.reshape(-1)[0])
    matrix = _matrix(count, size, size // 2 + 1 if onesided else size, parts_in, inverse)
    if matrix.size > _MOST:
        return f"a matrix of {matrix.size} numbers"
    order = [*(d for d in range(len(shape) - 1) if d != axis), axis, len(shape) - 1]
    rows = parts.transpose(x, order)
    moved = parts.shape(rows)
    y = parts.matmul(parts.reshape(rows, (parts.type(x).size // matrix.shape[0], matrix.shape[0])),
                     parts.const(matrix, "waves"))
    y = parts.reshape(y, (*moved[:-2], matrix.shape[1] // 2, 2))
    return (parts.transpose(y, np.argsort(order).tolist()),)


def _matrix(count: int, size: int, bins: int, parts_in: int, inverse: bool) -> Array:
    """[inputs * parts, bins * 2]; inputs from `size` on are cut off, missing ones are 0."""
    angles = 2 * np.pi * np.outer(np.arange(count), np.arange(bins)) / size * (1 if inverse else -1)
    wave = np.exp(1j * angles) * (np.arange(count) < size)[:, None] / (size if inverse else 1)
    rows = np.stack([wave, 1j * wave], 1)[:, :parts_in]
    return np.stack([rows.real, rows.imag], -1).reshape(count * parts_in, bins * 2)


def _short(parts: Parts) -> tuple[str, ...] | str:
    """Frames of the signal are the windows of a convolution."""
    x, shape = parts.input(0), parts.shape(parts.input(0))
    step, window, length = (parts.number(i) for i in (1, 2, 3))
    if step is None or any(parts.input(i) and a is None for i, a in ((2, window), (3, length))):
        return "its step, window or length is not a constant"
    if len(shape) == 3 and shape[2] != 1:
        return "a signal of complex numbers"
    size = int(length.reshape(-1)[0]) if length is not None else len(window) if window is not None else 0
    if not size:
        return "neither a window nor a length"
    waves = _matrix(size, size, size // 2 + 1 if parts.integer("onesided", 1) else size, 1, False)
    if waves.size > _MOST:
        return f"a matrix of {waves.size} numbers"
    waves = waves if window is None else waves * window.reshape(-1, 1)
    y = parts.op(
        "conv",
        (parts.reshape(x, (shape[0], 1, shape[1])), parts.const(waves.T[:, None], "waves")),
        kernel_shape=(size,),
        strides=(int(step.reshape(-1)[0]),),
        dilations=(1,),
        pads=(0, 0),
        group=1,
    )
    frames = parts.transpose(y, (0, 2, 1))
    return (parts.reshape(frames, (*parts.shape(frames)[:2], waves.shape[1] // 2, 2)),)
