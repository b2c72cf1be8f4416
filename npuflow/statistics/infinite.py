"""Infinities in activations: not counted, or trimmed to the outermost number that is one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npuflow.statistics.kernels import SHIFT
from npuflow.statistics.statistics import StatisticsColumn


def trimmed(tensor: StatisticsColumn, bounds: tuple[float, float] | None = None) -> StatisticsColumn:
    """The statistics with each infinity counted as the bound on its side, or without bounds as
    the outermost finite value."""
    _, up, down = (int(n) for n in tensor.totals[1:])
    if not tensor.count or not up + down:
        return tensor
    low, high = tensor.low.copy(), tensor.high.copy()
    if up and bounds is not None:
        high[int(high.argmax())] = np.float32(max(bounds[1], tensor.hi))
    if down and bounds is not None:
        low[int(low.argmin())] = np.float32(min(bounds[0], tensor.lo))
    held = dict(zip(tensor.keys.tolist(), tensor.counts.tolist(), strict=True))
    for count, value in ((up, high.max()), (down, low.min())):
        if count:
            key = int(np.float32(value).view(np.uint32)) >> SHIFT
            held[key] = held.get(key, 0) + count
    keys = np.array(sorted(held), np.int64)
    counts = np.array([held[k] for k in keys.tolist()], np.int64)
    totals = tensor.totals * np.array([1, 1, 0, 0])
    return replace(tensor, keys=keys, counts=counts, low=low, high=high, totals=totals)
