"""Fake quantisation of a whole tensor in one pass, and its gradients in another: compiled loops."""

from __future__ import annotations

from math import floor, trunc

import numpy as np
import numpy.typing as npt

from npuflow.base.compiled import compiled, reordering

Floats = npt.NDArray[np.float32]
MODES = ("half_up", "half_even", "half_away", "truncate")
BLOCK = 4096  # elements whose gradients of the scale are added in float32


@compiled
def rounded(ratio: float, mode: int) -> float:
    """A whole number by the rounding with that place in MODES."""
    if mode == 0:
        return floor(ratio + np.float32(0.5))
    if mode == 1:
        return np.rint(ratio)
    if mode == 2:
        return np.copysign(floor(abs(ratio) + np.float32(0.5)), ratio)
    return trunc(ratio)


@compiled
def forward(x: Floats, y: Floats, scale: np.float32, low: np.float32, high: np.float32, mode: int) -> None:
    for i in range(x.size):
        code = np.float32(rounded(x[i] / scale, mode))
        y[i] = min(max(code, low), high) * scale


@reordering
def block(
    x: Floats, gradient: Floats, of_x: Floats, scale: np.float32, low: np.float32, high: np.float32, mode: int
) -> np.float32:
    half, total = np.float32(0.5), np.float32(0.0)
    bottom, top = low - half, high + half
    for i in range(x.size):
        ratio, g = x[i] / scale, gradient[i]
        inside = (ratio >= bottom) & (ratio <= top)
        code = min(max(np.float32(rounded(ratio, mode)), low), high)
        of_x[i] = g if inside else np.float32(0.0)
        total += g * (code - (ratio if inside else np.float32(0.0)))
    return total


@compiled
def backward(
    x: Floats, gradient: Floats, of_x: Floats, scale: np.float32, low: np.float32, high: np.float32, mode: int
) -> float:
    """The gradient of the numbers, by the straight-through rule, and of the scale."""
    total = 0.0
    for first in range(0, x.size, BLOCK):
        last = min(first + BLOCK, x.size)
        part = block(x[first:last], gradient[first:last], of_x[first:last], scale, low, high, mode)
        total = total + float(part)
    return total
