"""Where a resized pixel comes from: source coordinates of every ONNX mode, as
integer index-and-weight tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

WEIGHT_BITS = 11                          # linear weights are multiples of 2^-11

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class Sampling:
    """How one dimension of `size` becomes `out`: `scale` is the ratio the model
    states (not always out / size)."""

    size: int
    out: int
    scale: float
    coordinate: str
    nearest: str | None                   # a rounding, or None for linear


def coordinates(s: Sampling) -> npt.NDArray[np.float64]:
    """Source coordinate of each output index (ONNX Resize); float32 as onnxruntime computes it."""
    x = np.arange(s.out, dtype=np.float32)
    scale = np.float32(s.scale)
    if s.coordinate == "asymmetric":
        found = x / scale
    elif s.coordinate == "align_corners":
        found = x * np.float32(s.size - 1) / np.float32(s.out - 1) if s.out > 1 else np.zeros_like(x)
    elif s.coordinate == "pytorch_half_pixel":
        found = (x + np.float32(0.5)) / scale - np.float32(0.5) if s.out > 1 else np.zeros_like(x)
    elif s.coordinate == "tf_half_pixel_for_nn":
        found = (x + np.float32(0.5)) / scale
    elif s.coordinate == "half_pixel_symmetric":
        adjustment = np.float32(s.out) / (scale * np.float32(s.size))
        offset = np.float32(s.size) / np.float32(2) * (np.float32(1) - adjustment)
        found = offset + (x + np.float32(0.5)) / scale - np.float32(0.5)
    else:
        found = (x + np.float32(0.5)) / scale - np.float32(0.5)
    return found.astype(np.float64)


def table(s: Sampling) -> npt.NDArray[np.int32]:
    """int32 [out, 4] rows (i0, i1, w0, w1): nearest has weights (1, 0), linear ones
    add up to 2^WEIGHT_BITS."""
    x = coordinates(s)
    last = s.size - 1
    if s.nearest is not None:
        if s.nearest == "round_prefer_floor":
            index = np.ceil(x - 0.5)
        elif s.nearest == "round_prefer_ceil":
            index = np.floor(x + 0.5)
        else:
            index = np.floor(x) if s.nearest == "floor" else np.ceil(x)
        i0 = np.clip(index, 0, last).astype(np.int32)
        return np.stack([i0, i0, np.ones_like(i0), np.zeros_like(i0)], 1)
    x = np.clip(x, 0.0, float(last))
    i0 = np.minimum(np.floor(x).astype(np.int32), last)
    i1 = np.minimum(i0 + 1, last).astype(np.int32)
    w1 = np.rint((x - i0) * (1 << WEIGHT_BITS)).astype(np.int32)
    return np.stack([i0, i1, (1 << WEIGHT_BITS) - w1, w1], 1).astype(np.int32)


def exact(s: Sampling) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Float form of the table: i0, i1 and the weight of i1."""
    t = table(s)
    if s.nearest is not None:
        return t[:, 0].astype(np.int64), t[:, 1].astype(np.int64), np.zeros(s.out, np.float32)
    x = np.clip(coordinates(s), 0.0, float(s.size - 1))
    return t[:, 0].astype(np.int64), t[:, 1].astype(np.int64), (x - t[:, 0]).astype(np.float32)
