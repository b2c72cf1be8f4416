"""What searches for a Pareto front share: noise and price of units, the front, its point.
A goal asks for a point of the front.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import InputError, Where
from npuflow.strategies import Levels, Problem, Strategy
from npuflow.strategies import _tuned as tuned

Reals = npt.NDArray[np.float64]

TINY = 1e-12


@dataclass
class Additive:
    """A problem as the searches see it: the noise of units adds up, and so, near a
    mixture, does their price."""

    problem: Problem

    @cached_property
    def least(self) -> Levels:
        """Every unit with as few bits as it may have."""
        return tuple(unit.candidates[0] for unit in self.problem.units)

    @cached_property
    def most(self) -> Levels:
        """Every unit with as many bits as it may have, or in a float type where that has less noise."""
        return tuple(self._best(k) for k in range(len(self.problem.units)))

    def _best(self, k: int) -> int:
        unit = self.problem.units[k]
        integers = [level for level in unit.candidates if level not in unit.floats]
        if not unit.floats:
            return integers[-1]
        last = (*integers[-1:], *unit.floats)
        return min(last, key=lambda level: float(self.noise(k, level).max(initial=0.0)))

    def noise(self, unit: int, level: int) -> Reals:
        """By output, the mean over samples."""
        return np.asarray(self.problem.noise(unit, level), np.float64).mean(0)

    def total(self, levels: Levels) -> Reals:
        """By output, the noise of a mixture as the sum of that of its units."""
        return np.sum([self.noise(k, level) for k, level in enumerate(levels)], axis=0)

    def error(self, levels: Levels) -> float:
        """The noise of the worst output."""
        return float(self.total(levels).max(initial=0.0))


def prices(problem: Problem, levels: Levels, unit: int) -> dict[int, float]:
    """By candidate what changing one unit alone adds to the price of a mixture."""
    candidates = problem.units[unit].candidates
    if problem.goal.minimise == "cycles":
        base = max(problem.cycles(levels) / max(problem.price(levels), TINY), TINY)
        return {c: problem.delta(levels, unit, c) / base for c in candidates}
    before = problem.price(levels)
    return {c: problem.price((*levels[:unit], c, *levels[unit + 1 :])) - before for c in candidates}


def pareto(problem: Problem, mixtures: Iterable[Levels]) -> list[Levels]:
    """Those that no other mixture beats in price and noise, cheapest first."""
    additive = Additive(problem)
    found = {levels: (problem.price(levels), additive.error(levels)) for levels in dict.fromkeys(mixtures)}
    front: list[Levels] = []
    for levels in sorted(found, key=lambda one: (*found[one], one)):
        if not front or found[levels][1] < found[front[-1]][1] * (1 - 1e-9):
            front.append(levels)
    return front


def spaced(front: Sequence[Levels], prices: Sequence[float], count: int) -> list[Levels]:
    """So many points of a front, evenly spaced by price, both ends among them."""
    if count >= len(front):
        return list(front)
    wanted = np.linspace(prices[0], prices[-1], count)
    at = {int(np.abs(np.asarray(prices) - price).argmin()) for price in wanted}
    return [front[i] for i in sorted(at)]


def within(problem: Problem, mixtures: Iterable[Levels]) -> list[Levels]:
    """Those that keep every limit of the goal. InputError names the limit that none can keep."""
    some = list(mixtures)
    limits = problem.goal.limits
    found = [one for one in some if all(problem.price(one, what) <= most for what, most in limits.items())]
    if found or not some:
        return found
    for what, most in limits.items():
        least = min(problem.price(one, what) for one in some)
        if least > most:
            raise InputError(
                f"no mixture of widths keeps max_{what} = {most:g}",
                because=f"the least that the widths of [precision] allow is {least:.3g}",
                hint=f"a larger limit, or fewer bits in [precision] {_widths_of(what)}",
                where=Where(key=f"precision.max_{what}"),
                code="NF-QUANT-040",
            )
    raise InputError(
        "no mixture of widths keeps all limits of [precision] at once",
        because=", ".join(f"max_{what} = {most:g}" for what, most in limits.items()),
        hint="raise one of them, or allow fewer bits",
        where=Where(key="precision"),
        code="NF-QUANT-041",
    )


def _widths_of(what: str) -> str:
    return "weights" if what in ("bytes", "bits") else "activations or weights"


class FrontStrategy(Strategy):
    """A strategy that gives a front. The goal takes the cheapest point that the quantised network finds
    within the budget; where none is, the one that comes closest."""

    def front(self, problem: Problem) -> Sequence[Levels]:
        """Mixtures from the cheapest to the most accurate, none of which another
        beats in the strategy's figures."""
        raise NotImplementedError

    def points(self, problem: Problem, count: int) -> Sequence[Levels]:
        front = within(problem, self.front(problem))
        return spaced(front, [problem.price(one) for one in front], count)

    def __call__(self, problem: Problem) -> Levels:
        front = within(problem, self.front(problem))
        if not front:
            return tuple(unit.candidates[0] for unit in problem.units)
        at = _first_measured(problem, front)
        if problem.holds(front[at]):
            checked = 0
            while at > 0 and checked < tuned.FRONT_CHECKS and problem.holds(front[at - 1]):
                at, checked = at - 1, checked + 1
            return front[at]
        step = 1
        while at + step < len(front):
            if problem.holds(front[at + step]):
                return _first(problem, front, at, at + step)
            at, step = at + step, 2 * step
        if problem.budget.holds(problem.verified(front[-1])):      # else it is one of those compared below
            return _first(problem, front, at, len(front) - 1)
        judged = [front[-1], *front[max(0, len(front) - tuned.FRONT_CHECKS) : -1], *_along(front)]
        return max(judged, key=lambda one: problem.budget.level(problem.verified(one)))


def _along(front: Sequence[Levels]) -> list[Levels]:
    """Its cheapest mixture and some on the way. Noise is a sum to the searches only: with weights that were
    rounded for narrow layers above them, more bits there can cost accuracy."""
    return [front[i * (len(front) - 1) // tuned.FRONT_SPREAD] for i in range(tuned.FRONT_SPREAD)]


def _first_measured(problem: Problem, front: Sequence[Levels]) -> int:
    """About the first point that holds the budget by fake quantisation, the last where none does: some along
    the front, then halves. A front has hundreds of points, and what holds there begins at one of them."""
    below = -1
    for at in sorted({i * (len(front) - 1) // tuned.FRONT_CHECKS for i in range(tuned.FRONT_CHECKS + 1)}):
        if problem.promises(front[at]):
            break
        below = at
    while at - below > 1:
        middle = (below + at) // 2
        if problem.promises(front[middle]):
            at = middle
        else:
            below = middle
    return at


def _first(problem: Problem, front: Sequence[Levels], low: int, high: int) -> Levels:
    """The first point after `low`, which misses the budget, that holds it; `high` does."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if problem.holds(front[middle]) else (middle, high)
    return front[high]
