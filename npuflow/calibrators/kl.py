"""The clipping threshold whose quantised distribution diverges least
(Kullback-Leibler) from the observed one.

Source: S. Migacz, "8-bit inference with TensorRT", GTC 2017: 2048 bins of magnitudes, merged into 128 levels;
candidate thresholds are the bins from the 128th on. What lies beyond a candidate is added to its last bin, in
the reference only. As in NVIDIA's pytorch-quantization, levels are equally wide also where they do not divide
the bins, and the bin at zero counts as much as its neighbour: else the zeros of a ReLU outweigh everything,
and clipping it all away seems free.

The published procedure (smoothing = 0) has a blind spot: it charges for moving values within one level, which
costs a quantiser nothing. Where much of a tensor is a few exact values (a plain background and what a network
makes of it), it clips close above them. Blurring the counts by half a level's width before they are compared
takes that charge away and leaves smooth distributions as they are.

In two more cases the published procedure loses every value. All mass in the last bin does not diverge from
all mass in the last bin, so that a tensor far from zero is clipped just below its values; and fewer values
than bins (one of each sample, say) show no shape but their own gaps. With a blur no candidate clips more than
a tenth, and so few values keep their whole range.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np

from npuflow.base.tables import Range
from npuflow.calibrators import CALIBRATORS, Calibrator, Floats, Grid, TensorStatistics, fitted

MOST = 0.1                                # of the values that are not zero may be clipped

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@CALIBRATORS.entry
@dataclass(frozen=True)
class Kl(Calibrator):
    """Entropy calibration. `levels` and `smoothing` are those for 8 bits; with each bit more there are twice
    as many levels, half as wide, until they are as fine as the bins and nothing is cut. `levels` 0: as many
    as the grid has for magnitudes.
    """

    bins: Annotated[int, Range(256, 65536)] = 2048
    levels: Annotated[int, Range(0, 4096)] = 128
    # standard deviation of the blur, in bins; 0: as published
    smoothing: Annotated[float, Range(0, 256)] = 8.0
    # one threshold for magnitudes, or one for each sign
    sides: Literal["together", "apart"] = "together"

    def __call__(self, statistics: TensorStatistics, grid: Grid) -> tuple[float, float]:
        lo, hi = statistics.lo, statistics.hi
        levels = int(self.levels * 2.0 ** (grid.bits - 8)) or grid.levels // (
            2 if grid.signed or lo < 0 else 1
        )
        if (self.smoothing and _few(statistics, self.bins)) or max(-lo, hi) <= 0 or levels >= self.bins:
            return fitted(lo, hi, grid)
        blur = self.smoothing * 2.0 ** (8 - grid.bits)
        if self.sides == "together" or grid.symmetric:
            top = max(-lo, hi)
            best = self._threshold(
                statistics.histogram(self.bins, 0.0, top, absolute=True), top, levels, blur
            )
            return fitted(max(lo, -best), min(hi, best), grid)
        return fitted(
            -self._side(statistics, -lo, levels, blur, -1), self._side(statistics, hi, levels, blur, 1), grid
        )

    def _side(self, statistics: TensorStatistics, top: float, levels: int, blur: float, sign: int) -> float:
        if top <= 0:
            return 0.0
        counts = (
            statistics.histogram(self.bins, 0.0, top)
            if sign > 0
            else statistics.histogram(self.bins, -top, 0.0)[::-1]
        )
        return self._threshold(counts, top, levels, blur)

    def _threshold(self, counts: Floats, top: float, levels: int, blur: float) -> float:
        return top * least_divergent(counts, levels, blur) / self.bins


def _few(statistics: TensorStatistics, bins: int) -> bool:
    lower, upper, counts = statistics.cells()
    return float(counts.sum() - counts[(lower == 0) & (upper == 0)].sum()) < bins


def least_divergent(counts: Floats, levels: int, smoothing: float = 0.0) -> int:
    """The number of bins to keep, from `levels` to all of them (the smallest of equals)."""
    counts = counts.copy()
    counts[0] = counts[1]
    if smoothing:
        counts = blurred(counts, smoothing)
    if not counts.any():
        return len(counts)
    mass = np.cumsum(counts)
    least = int(np.searchsorted(mass, (1 - MOST) * mass[-1])) + 1 if smoothing else levels
    kept = np.arange(max(levels, least), len(counts) + 1)
    bound = least_possible(counts, kept, levels)
    few = np.sort(np.argsort(bound, kind="stable")[::16])          # the best of these rules most others out
    best = divergences(counts, kept[few], levels).min()
    kept = kept[bound <= best * (1 + 1e-9) + 1e-12]
    found = int(kept[np.argmin(divergences(counts, kept, levels))])
    # What a clip saturates at lies in the last bin: a threshold within the blur of it means the whole range.
    return len(counts) if found > len(counts) - 4 * smoothing else found


def least_possible(counts: Floats, kept: Ints, levels: int) -> Floats:
    """A lower bound of each candidate's divergence: that of the last bin against all
    others (data processing)."""
    mass: Floats = np.cumsum(counts)
    filled: Ints = np.cumsum(counts > 0)
    start = -(-kept * (levels - 1) // levels) - 1                # where the last group begins
    group = mass[kept - 1] - mass[start]
    size = filled[kept - 1] - filled[start]
    inside = np.maximum(mass[kept - 1], 1e-300)
    p = (counts[kept - 1] + mass[-1] - mass[kept - 1]) / mass[-1]
    q = np.where(counts[kept - 1] > 0, group / np.maximum(size, 1) / inside, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        last = np.where(p > 0, p * np.log(p / q), 0.0)
        rest = np.where(p < 1, (1 - p) * np.log((1 - p) / np.maximum(1 - q, 1e-300)), 0.0)
    return np.asarray(np.nan_to_num(last + rest, nan=0.0, posinf=np.inf))


def blurred(counts: Floats, deviation: float) -> Floats:
    """Convolved with a normal distribution; mirrored at both ends, so that no mass leaves."""
    reach = min(int(np.ceil(4 * deviation)), len(counts) - 1)
    places = np.arange(-reach, reach + 1)
    kernel = np.exp(-0.5 * (places / deviation) ** 2)
    kernel[kernel < 1e-3] = 0.0          # what is empty for far around stays empty
    padded = np.concatenate([counts[reach:0:-1], counts, counts[:-reach - 1 : -1]])
    return np.convolve(padded, kernel / kernel.sum(), "valid")


@lru_cache(maxsize=4)
def _edges(bins: int, levels: int) -> Ints:
    """First bin of each level, for every candidate."""
    return -(-np.arange(levels, bins + 1)[:, None] * np.arange(levels + 1)[None] // levels)


def divergences(counts: Floats, kept: Ints, levels: int) -> Floats:
    """KL(P || Q) per candidate, all candidates at once.

    Of P the first `kept` bins, the last of them with everything beyond; Q spreads each of `levels` groups of
    the unclipped bins evenly over those that are occupied. Prefix sums give every group's mass and occupancy,
    so a candidate costs its groups and not its bins.
    """
    occupied = counts > 0
    mass = np.concatenate([[0.0], np.cumsum(counts)])
    filled = np.concatenate([[0], np.cumsum(occupied)])
    logs = np.log(np.maximum(np.arange(len(counts) + 1), 1))     # of any number of occupied bins
    entropy = np.concatenate([[0.0], np.cumsum(counts * np.log(np.where(occupied, counts, 1.0)))])
    total = mass[-1]
    edges = _edges(len(counts), levels)[kept - levels]
    at, full = mass[edges], filled[edges]
    group, size = at[:, 1:] - at[:, :-1], full[:, 1:] - full[:, :-1]
    level = np.log(np.where(group > 0, group, 1.0)) - logs[size]
    beyond = total - mass[kept]
    last = counts[kept - 1]
    p_last = last + beyond
    p_log_p = entropy[kept - 1] + p_last * np.log(np.where(p_last > 0, p_last, 1.0))
    p_log_q = np.einsum("ij,ij->i", group, level) + beyond * level[:, -1]
    # A candidate that puts mass into a last bin where the quantised distribution has
    # none diverges without bound.
    impossible = (last == 0) & (beyond > 0)
    inside = mass[kept]
    found = (p_log_p - p_log_q) / total - np.log(total) + np.log(np.where(inside > 0, inside, 1.0))
    return np.where(impossible | (inside <= 0), np.inf, found)
