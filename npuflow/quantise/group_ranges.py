"""Ranges of weights in groups, by what their errors cost.

From the least number of a group to its greatest, codes are as far apart as its ends; a somewhat smaller
range clips these, and is finer everywhere else. A few shares of the range are tried; from the codes of each,
the scale (and the minimum) of least squared error follow in closed form, and new codes from these, a few
times. Every squared error counts by the importance of its term. The search is that of llama.cpp's k-quants
(2023), with second moments for importance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from npuflow.ir.types import Array
from npuflow.rounders import halves

Floats = npt.NDArray[np.float32]

# 4 bits on SmolLM2-135M, noise of layers on held-out texts: .3 to 1.1 dB less with zero points in groups of
# 32, .9 to 2.7 dB with minima in groups of 64; twelve shares give another .1 dB
SHARES = (1.0, 0.92, 0.85, 0.78)
STEPS = 3
TINY = 1e-30
AT_ONCE = 1 << 22                         # weights that are looked at together


class GroupRanges(NamedTuple):
    """[channels, groups] each: scales, and zero points or minima, all as they are kept."""

    scales: Floats
    offsets: Floats


def with_zeros(
    rows: Array, importance: Array, size: int, ends: tuple[int, int], symmetric: bool
) -> GroupRanges:
    """Of groups of `size` terms of a matrix [channels, terms] whose codes go from one end to the other. With
    `symmetric` zero points are 0. `importance`: [terms]."""
    return _by_rows(lambda x, weight: _zeros(x, weight, ends, symmetric), rows, importance, size)


def with_minima(rows: Array, importance: Array, size: int, top: int) -> GroupRanges:
    """The same of codes from 0 to `top` above minima."""
    return _by_rows(lambda x, weight: _minima(x, weight, top), rows, importance, size)


def _zeros(x: Floats, weight: Floats, ends: tuple[int, int], symmetric: bool) -> GroupRanges:
    lo, hi = ends
    least, most = np.minimum(x.min(-1), 0), np.maximum(x.max(-1), 0)
    found = _Best(least.shape)
    for share in SHARES:
        if symmetric:
            scale, zero = _half(share * np.maximum(least / lo, most / hi)), np.zeros_like(least)
        else:
            scale = _half(share * (most - least) / (hi - lo))
            zero = np.clip(np.rint(lo - share * least / scale), lo, hi)
        for _ in range(STEPS):
            codes = np.clip(np.rint(x / scale[..., None]), (lo - zero)[..., None], (hi - zero)[..., None])
            found.take(_error(x - scale[..., None] * codes, weight), scale, zero)
            scale = _half(_sums(x, codes, weight) / np.maximum(_sums(codes, codes, weight), TINY))
    return found.ranges


def _minima(x: Floats, weight: Floats, top: int) -> GroupRanges:
    least, most, ones = x.min(-1), x.max(-1), np.ones_like(x)
    middle, total, mean = (least + most) / 2, weight.sum(-1), _sums(x, ones, weight)
    found = _Best(least.shape)
    for share in SHARES:
        scale, minimum = _half(share * (most - least) / top), _float16(middle + share * (least - middle))
        for _ in range(STEPS):
            codes = np.clip(np.rint((x - minimum[..., None]) / scale[..., None]), 0, top)
            found.take(_error(x - scale[..., None] * codes - minimum[..., None], weight), scale, minimum)
            squares, sums = _sums(codes, codes, weight), _sums(codes, ones, weight)
            spread = total * squares - sums**2
            known = spread > 1e-6 * total * squares         # else all codes are equal
            slope = (total * _sums(x, codes, weight) - sums * mean) / np.where(known, spread, 1)
            scale = np.where(known, slope, scale)
            minimum = _float16((mean - scale * sums) / np.maximum(total, TINY))
            scale = _half(scale)
    return found.ranges


class _Best:
    """What had the least error of each group so far."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.error = np.full(shape, np.inf, np.float32)
        self.ranges = GroupRanges(_half(np.zeros(shape)), np.zeros(shape, np.float32))

    def take(self, error: Floats, scale: Floats, offset: Floats) -> None:
        better = error < self.error
        self.error = np.where(better, error, self.error)
        pairs = zip((scale, offset), self.ranges, strict=True)
        self.ranges = GroupRanges(*(np.where(better, new, old) for new, old in pairs))


def _by_rows(
    search: Callable[[Floats, Floats], GroupRanges], rows: Array, importance: Array, size: int
) -> GroupRanges:
    """Some channels at a time, [channels, groups, size], with the weights of terms, [groups, size]. What the
    last group lacks are copies of its first term, which count nothing."""
    terms, step = rows.shape[1], max(1, AT_ONCE // max(1, rows.shape[1]))
    at = np.arange(-(-terms // size) * size)
    at = np.where(at < terms, at, terms - 1 - (terms - 1) % size)
    weight = np.zeros(len(at), np.float32)
    weight[:terms] = importance / max(float(importance.mean()), TINY)
    found = []
    for first in range(0, len(rows), step):
        some = rows[first : first + step][:, at].astype(np.float32)
        found.append(search(some.reshape(len(some), -1, size), weight.reshape(-1, size)))
    return GroupRanges(*map(np.concatenate, zip(*found, strict=True)))


def _sums(a: Floats, b: Floats, weight: Floats) -> Floats:
    return np.asarray(np.einsum("cgk,cgk,gk->cg", a, b, weight), np.float32)


def _error(off: Floats, weight: Floats) -> Floats:
    return _sums(off, off, weight)


def _float16(array: Array) -> Floats:
    return array.astype(np.float16).astype(np.float32)


def _half(scale: Array) -> Floats:
    return halves(scale).astype(np.float32)
