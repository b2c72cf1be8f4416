"""Ranges of constant weights, every channel at once: all of it, a percentile, or
what loses least when rounded."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Real = npt.NDArray[np.float64]
Method = Literal["minmax", "percentile", "mse", "octav"]
CHUNK = 1 << 21                           # weights whose candidates are judged at once


def ends(
    rows: Real, method: Method, percentile: float, codes: tuple[int, int], symmetric: bool
) -> tuple[Real, Real]:
    """(lo, hi) of every row; they hold zero. `codes`: the first and the last that there are."""
    lo, hi = np.minimum(rows.min(axis=1, initial=0.0), 0.0), np.maximum(rows.max(axis=1, initial=0.0), 0.0)
    if method == "minmax" or not rows.size:
        return lo, hi
    step = max(1, CHUNK // rows.shape[1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        scale = _scales(rows[part], lo[part], hi[part], method, percentile, codes, symmetric)
        lo[part], hi[part] = lo[part] * scale, hi[part] * scale
    return lo, hi


def _scales(
    rows: Real, lo: Real, hi: Real, method: Method, percentile: float, codes: tuple[int, int], symmetric: bool
) -> Real:
    """By how much each row's extrema shrink."""
    if method == "percentile":
        keep = np.quantile(np.abs(rows), percentile / 100, axis=1, method="inverted_cdf")
        return np.asarray(_divided(keep, np.maximum(-lo, hi)))
    if method == "octav":
        return _octav(np.abs(rows), np.maximum(-lo, hi), codes)
    coarse = np.linspace(0.2, 1.0, 17)
    best = _least(rows, lo, hi, np.broadcast_to(coarse[:, None], (17, len(rows))), codes, symmetric)
    return _least(
        rows, lo, hi, np.minimum(best + np.linspace(-0.04, 0.04, 9)[:, None], 1.0), codes, symmetric
    )


def _least(rows: Real, lo: Real, hi: Real, shares: Real, codes: tuple[int, int], symmetric: bool) -> Real:
    """Per row the share (of those in its column) with the least squared error."""
    losses = np.stack([_loss(rows, lo * share, hi * share, codes, symmetric) for share in shares])
    # Of equals the largest share: a row of few distinct values is not clipped for nothing.
    at = len(shares) - 1 - np.argmin(losses[::-1], axis=0)
    return np.asarray(np.take_along_axis(shares, at[None], axis=0)[0])


def _loss(rows: Real, lo: Real, hi: Real, codes: tuple[int, int], symmetric: bool) -> Real:
    first, last = codes
    step = np.maximum(hi / last, lo / first if first else 0.0) if symmetric else (hi - lo) / (last - first)
    step = np.where(step > 0, step, 1.0)[:, None]
    zero = 0.0 if symmetric else np.clip(np.rint(first - lo / step[:, 0]), first, last)[:, None]
    held = np.rint(rows / step)
    np.clip(held, first - zero, last - zero, out=held)
    held *= step
    held -= rows
    return np.asarray(np.einsum("ij,ij->i", held, held))


def _octav(magnitudes: Real, top: Real, codes: tuple[int, int], rounds: int = 20) -> Real:
    """As the threshold method of that name, row by row (one threshold for magnitudes)."""
    unit = 1 / (3.0 * (codes[1] - codes[0]) ** 2)
    busy = (magnitudes > 0).sum(axis=1)
    ends = _divided(magnitudes.sum(axis=1), busy)
    for _ in range(rounds):
        over = magnitudes > ends[:, None]
        count = over.sum(axis=1)
        ends = _divided((magnitudes * over).sum(axis=1), unit * (busy - count) + count)
    return np.asarray(np.minimum(_divided(ends, top), 1.0))


def _divided(above: Real, below: Real) -> Real:
    return np.asarray(np.where(below > 0, above / np.where(below > 0, below, 1.0), 1.0))
