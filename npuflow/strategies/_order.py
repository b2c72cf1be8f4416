"""The order in which units are raised: what takes most of the noise away per added cycle is first."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from npuflow.strategies import Levels, Noise, Problem

# dB that each of some units gains: the noise that is left, and theirs as [units, samples, outputs]
Gains = Callable[[Noise, Noise], NDArray[np.float64]]


def by_gain(
    problem: Problem,
    start: Levels,
    upper: Levels,
    noise: Mapping[int, Noise],
    total: Noise,
    gains: Gains,
    least: float,
) -> list[tuple[int, float]]:
    """The units of `noise`, from `start` each to its `upper` level, with the dB that it gained in its turn.

    `least`: cycles that a unit costs at least. Raising a unit changes what its neighbours cost, and nobody
    else.
    """
    units = sorted(noise)
    if not units:
        return []
    place = {k: i for i, k in enumerate(units)}
    levels, stack = list(start), np.stack([noise[k] for k in units])
    cost = np.array([max(problem.delta(start, k, upper[k]), least) for k in units])
    left, found = np.ones(len(units), bool), list[tuple[int, float]]()
    for _ in units:
        db = gains(total, stack)
        i = int(np.argmax(np.where(left, db / cost, -np.inf)))
        k = units[i]
        found.append((k, float(db[i])))
        left[i], levels[k] = False, upper[k]
        total = np.maximum(total - stack[i], 0.0)
        now = tuple(levels)
        for near in problem.units[k].neighbours:
            if near in place and left[place[near]]:
                cost[place[near]] = max(problem.delta(now, near, upper[near]), least)
    return found
