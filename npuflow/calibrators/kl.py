"""The clipping threshold whose quantised distribution diverges least (Kullback-Leibler) from the observed one.

Source: S. Migacz, "8-bit inference with TensorRT", GTC 2017: 2048 bins of magnitudes, merged into 128 levels; candidate
thresholds are the bins from the 128th on. What lies beyond a candidate is added to its last bin, in the reference only.
As in NVIDIA's pytorch-quantization, levels are equally wide also where they do not divide the bins, and the bin at zero
counts as much as its neighbour: else the zeros of a ReLU outweigh everything, and clipping it all away seems free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from npuflow.base.tables import Range
from npuflow.ir.contracts import CALIBRATORS, Calibrator, Floats, Grid, TensorStatistics, fitted


@CALIBRATORS.entry
@dataclass(frozen=True)
class Kl(Calibrator):
    """Entropy calibration. `levels` 0: as many as the grid has for magnitudes (128 for 8 signed bits)."""

    bins: Annotated[int, Range(256, 65536)] = 2048
    levels: Annotated[int, Range(0, 4096)] = 128

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        top = max(-statistics.lo, statistics.hi)
        if top <= 0:
            return 0.0, 0.0
        levels = self.levels or grid.levels // (2 if grid.signed or statistics.lo < 0 else 1)
        if levels >= self.bins:
            return fitted(statistics.lo, statistics.hi, grid)
        counts = statistics.histogram(self.bins, 0.0, top, absolute=True)
        best = top * least_divergent(counts, levels) / self.bins
        return fitted(max(statistics.lo, -best), min(statistics.hi, best), grid)


def least_divergent(counts: Floats, levels: int) -> int:
    """The number of bins to keep, from `levels` to all of them (the smallest of equals)."""
    counts = counts.copy()
    counts[0] = counts[1]
    kept = np.arange(levels, len(counts) + 1)
    return int(kept[np.argmin(divergences(counts, kept, levels))])


def divergences(counts: Floats, kept: np.ndarray[tuple[int, ...], np.dtype[np.int64]], levels: int) -> Floats:
    """KL(P || Q) per candidate, all candidates at once.

    Of P the first `kept` bins, the last of them with everything beyond; Q spreads each of `levels` groups of the
    unclipped bins evenly over those that are occupied. Prefix sums give every group's mass and occupancy, so a candidate
    costs its groups and not its bins.
    """
    occupied = counts > 0
    mass = np.concatenate([[0.0], np.cumsum(counts)])
    filled = np.concatenate([[0], np.cumsum(occupied)])
    safe = np.where(occupied, counts, 1.0)
    entropy = np.concatenate([[0.0], np.cumsum(counts * np.log(safe))])
    total = mass[-1]
    edges = -(-kept[:, None] * np.arange(levels + 1)[None] // levels)
    group, size = np.diff(mass[edges], axis=1), np.diff(filled[edges], axis=1)
    level = np.log(np.where(group > 0, group, 1.0) / np.where(size > 0, size, 1))
    beyond = total - mass[kept]
    last = counts[kept - 1]
    p_last = last + beyond
    p_log_p = entropy[kept] - entropy[kept - 1]
    p_log_p = entropy[kept] - p_log_p + p_last * np.log(np.where(p_last > 0, p_last, 1.0))
    p_log_q = (group * level).sum(1) + beyond * level[:, -1]
    # A candidate that puts mass into a last bin where the quantised distribution has none diverges without bound.
    impossible = (last == 0) & (beyond > 0)
    inside = mass[kept]
    found = (p_log_p - p_log_q) / total - np.log(total) + np.log(np.where(inside > 0, inside, 1.0))
    return np.where(impossible | (inside <= 0), np.inf, found)
