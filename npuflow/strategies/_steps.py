"""Adds bits one unit at a time, the step of most noise for its price next.
It goes from the fewest bits to the most.
"""

from __future__ import annotations

import numpy as np

from npuflow.strategies import Levels, Problem
from npuflow.strategies._front import TINY, Additive, prices


def steps(problem: Problem) -> list[Levels]:
    """The mixtures on the way from the fewest bits to the most."""
    additive = Additive(problem)
    units = problem.units
    levels, total = list(additive.least), additive.total(additive.least)
    found = [tuple(levels)]
    unit_price = {k: prices(problem, tuple(levels), k) for k in range(len(units))}
    while True:
        best: tuple[float, int, int] | None = None
        for k, unit in enumerate(units):
            here = unit.candidates.index(levels[k])
            for level in unit.candidates[here + 1 :]:
                rest = np.maximum(total - additive.noise(k, levels[k]) + additive.noise(k, level), TINY)
                gain = float(np.log10(np.maximum(total, TINY) / rest).mean())
                worth = gain / max(unit_price[k][level], 1e-6)
                if best is None or worth > best[0]:
                    best = worth, k, level
        if best is None:
            return found
        _, k, level = best
        total = total - additive.noise(k, levels[k]) + additive.noise(k, level)
        levels[k] = level
        found.append(tuple(levels))
        for near in (k, *units[k].neighbours):
            unit_price[near] = prices(problem, tuple(levels), near)
