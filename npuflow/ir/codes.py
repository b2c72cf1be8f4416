"""Codes and the real numbers that they stand for: integers by scale and zero point, floats by their
patterns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npuflow.hw import blocks, floats
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.numerics import dequantize, quantize
from npuflow.ir.types import Array, FloatType, QuantType


def encode(array: npt.ArrayLike, quant: QuantType) -> Array:
    """The codes nearest to real numbers."""
    real = np.asarray(array)
    if isinstance(quant, FloatType) and quant.group_axis is not None:
        return blocks.encoded(real, quant.element, quant.group_axis)
    if isinstance(quant, FloatType):
        return floats.encoded(real, quant.element)
    scale, zero = quant.spread(real.shape)
    return np.asarray(quantize(real, scale, zero, quant.lo, quant.hi).astype(quant.dtype))


def decode(codes: Array, quant: QuantType) -> Array:
    """The float32 numbers that codes stand for."""
    if isinstance(quant, FloatType):
        return real_of(codes, quant.element).astype(np.float32)
    return dequantize(codes, *quant.spread(codes.shape))


def real_of(codes: Array, element: str) -> npt.NDArray[np.float64]:
    """What codes of a float type, or of a block type, stand for."""
    decoded = floats.decoded if ELEMENTS[element].block is None else blocks.decoded
    return decoded(codes, element)
