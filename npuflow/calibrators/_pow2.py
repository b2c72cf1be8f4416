"""Ranges whose step is a power of two."""

from __future__ import annotations

import numpy as np

from npuflow.calibrators import Grid
from npuflow.calibrators._moments import Floats


def exponents(lo: Floats, hi: Floats, grid: Grid) -> Floats:
    """Of each range, the exponent of the smallest power-of-two step that holds it."""
    lo, hi = np.minimum(lo, 0.0), np.maximum(hi, 0.0)
    if not grid.symmetric:
        need = (hi - lo) / (grid.levels - 1)
    elif grid.signed:
        need = np.maximum(hi / grid.last, lo / grid.first)
    else:
        need = hi / (grid.levels - 1)
    return np.ceil(np.log2(np.maximum(need, 1e-30)) - 1e-6)


def span(lo: float, hi: float, exponent: int, grid: Grid) -> tuple[float, float]:
    """The range of a power-of-two step that suits [lo, hi], zero included."""
    step = 2.0**exponent
    if grid.symmetric:
        return (-step * grid.last if grid.signed else 0.0), step * grid.last
    # Codes are shared out in proportion to the two ends.
    wide, lo, hi = grid.levels - 1, min(lo, 0.0), max(hi, 0.0)
    first = np.rint(lo * wide / (hi - lo)) if hi > lo else 0.0
    return float(first * step), float((first + wide) * step)


def modal(votes: Floats) -> int:
    """What most say; of equals the larger."""
    values, counts = np.unique(votes, return_counts=True)
    return int(values[::-1][np.argmax(counts[::-1])])
