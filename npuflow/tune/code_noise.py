"""Noise of codes beside real values, without an array of the numbers that the codes stand for.

Trials of a correction compare each layer twice: with arrays of numbers and of their differences, that takes
longer than the layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from npuflow.base.compiled import reordering
from npuflow.hw.numerics import SMALL_BITS, SMALL_BYTES
from npuflow.ir.codes import decode
from npuflow.ir.noise import SignalToNoise
from npuflow.ir.types import Array, FloatType, GroupedType, QuantType


def coded_noise(real: Sequence[Array], codes: Sequence[Array], quant: QuantType | None) -> float:
    """Noise over signal of codes, or of numbers where there is no type, all samples together; as
    `SignalToNoise` counts what is no number, or of another shape."""
    sums = SignalToNoise()
    for truth, made in zip(real, codes, strict=True):
        if quant is None or not _plain(truth, made, quant):
            sums.add(truth, made if quant is None else decode(made, quant))
            continue
        signal, noise = _energies(
            truth.reshape(-1), made.reshape(-1), np.float32(quant.scale[0]), np.int32(quant.zero_point[0])
        )
        if isfinite(signal):
            sums.signal += signal
            sums.noise += noise
        else:
            sums.add(truth, decode(made, quant))
    return sums.ratio


def _plain(truth: Array, made: Array, quant: QuantType) -> bool:
    """Whether float32 arithmetic gives the numbers that the codes stand for."""
    if isinstance(quant, FloatType | GroupedType) or not quant.per_tensor or truth.shape != made.shape:
        return False
    narrow = made.dtype.kind in "iu" and made.dtype.itemsize <= SMALL_BYTES
    small = narrow and abs(quant.zero_point[0]) < 2**SMALL_BITS
    single = float(np.float32(quant.scale[0])) == quant.scale[0]
    along = truth.flags.c_contiguous and made.flags.c_contiguous
    return truth.dtype == np.float32 and small and single and along


@reordering
def _energies(real: Any, codes: Any, scale: Any, zero: Any) -> Any:
    """The sum of squares of real values, and of their distances from the numbers of the codes."""
    signal, noise = 0.0, 0.0
    for i in range(real.shape[0]):
        value = np.float64(real[i])
        away = np.float64(scale * np.float32(np.int32(codes[i]) - zero)) - value
        signal += value * value
        noise += away * away
    return signal, noise
