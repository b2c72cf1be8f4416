"""Codes and the real numbers that they stand for: integers by scale and zero point, floats by their
patterns."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
import numpy.typing as npt

from npuflow.hw import blocks, floats
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.floats import in_pieces
from npuflow.hw.numerics import dequantize, quantize
from npuflow.ir.types import Array, FloatType, GroupedType, QuantType

AT_ONCE = 1 << 24  # numbers that are converted at a time: each takes some 40 bytes meanwhile


def encode(array: npt.ArrayLike, quant: QuantType) -> Array:
    """The codes nearest to real numbers."""
    real = np.asarray(array)
    if isinstance(quant, FloatType) and quant.group_axis is not None:
        return blocks.encoded(real, quant.element, quant.group_axis)
    if isinstance(quant, FloatType):
        return in_pieces(lambda some: floats.encoded(some, quant.element), real, quant.dtype)
    if isinstance(quant, GroupedType):
        near = quant.groups(real.shape).nearest(quant.by_channel(real))
        return np.ascontiguousarray(quant.by_channel(near))
    ends = quant.spread(real.shape)
    made = np.empty(real.shape, quant.dtype)
    for some in _parts(real.shape):
        scale, zero = (_of(end, some, real.shape) for end in ends)
        made[some] = quantize(real[some], scale, zero, quant.lo, quant.hi)
    return made


def decode(codes: Array, quant: QuantType) -> Array:
    """The float32 numbers that codes stand for."""
    if isinstance(quant, FloatType):
        if ELEMENTS[quant.element].block is not None:
            return real_of(codes, quant.element).astype(np.float32)
        return in_pieces(lambda some: real_of(some, quant.element), codes, "float32")
    if isinstance(quant, GroupedType):
        exact = quant.groups(codes.shape).numbers(quant.by_channel(codes))
        held = floats.rounded(exact, quant.loaded) if quant.loaded else exact
        return np.ascontiguousarray(quant.by_channel(held), np.float32)
    ends = quant.spread(codes.shape)
    if codes.size <= AT_ONCE:
        return np.asarray(dequantize(codes, *ends)).reshape(codes.shape)
    made = np.empty(codes.shape, np.float32)
    for some in _parts(codes.shape):
        scale, zero = (_of(end, some, codes.shape) for end in ends)
        made[some] = dequantize(codes[some], scale, zero)
    return made


def _parts(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Consecutive parts of an array along its first dimension of several, or all of it."""
    count = prod(shape)
    if count <= AT_ONCE or not shape:
        yield (slice(None),) * len(shape)
        return
    at = next(d for d, n in enumerate(shape) if n > 1)
    step = max(1, AT_ONCE * shape[at] // count)
    for start in range(0, shape[at], step):
        yield (*(slice(None),) * at, slice(start, start + step))


def _of(end: Array, some: tuple[slice, ...], shape: tuple[int, ...]) -> Array:
    """Scales or zero points of a part."""
    at = len(some) - 1
    return end[some] if shape and end.ndim == len(shape) and end.shape[at] == shape[at] else end


def real_of(codes: Array, element: str) -> npt.NDArray[np.float64]:
    """What codes of a float type, or of a block type, stand for."""
    decoded = floats.decoded if ELEMENTS[element].block is None else blocks.decoded
    return decoded(codes, element)
