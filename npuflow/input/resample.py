"""One axis of a picture at another size, as the matrix of Pillow's filters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]
TOP = 127                                 # largest code of a weight of 8 bits


def _triangle(x: Reals) -> Reals:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _box(x: Reals) -> Reals:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


FILTERS: dict[str, tuple[Callable[[Reals], Reals], float]] = {
    "bilinear": (_triangle, 1.0), "area": (_box, 0.5),
}


def resampling(size: int, wanted: int, method: str, antialias: bool = True) -> Reals:
    """[wanted, size]: the weights of every result; rows add up to 1. `antialias`: shrinking widens the
    filter, as Pillow does."""
    kernel, support = FILTERS[method]
    scale = size / wanted
    wide = max(scale, 1.0) if antialias else 1.0
    centers = (np.arange(wanted) + 0.5) * scale
    low = np.maximum(0, np.floor(centers - support * wide + 0.5))
    high = np.minimum(size, np.floor(centers + support * wide + 0.5))
    at = np.arange(size)[None]
    weights = kernel((at + 0.5 - centers[:, None]) / wide)
    weights[(at < low[:, None]) | (at >= high[:, None])] = 0.0
    return weights / weights.sum(1, keepdims=True)


def fraction_bits(weights: npt.NDArray[np.floating]) -> int:
    """n of the smallest step 2^-n with which the largest weight has a code of 8 bits."""
    return int(np.floor(np.log2(TOP / float(weights.max()))))


def fixed_point(weights: Reals) -> Reals:
    """The weights as multiples of 2^-n, every row with a sum of exactly 1: independent rounding would make
    flat areas darker or lighter. The largest remainders of a row are rounded up."""
    ones = 1 << fraction_bits(weights)
    found = np.floor(weights * ones)
    for row, remainder in zip(found, weights * ones - found, strict=True):
        row[np.argsort(-remainder, kind="stable")[: ones - int(row.sum())]] += 1
    return found / ones
