"""The cheapest widening until a budget holds: an order by gain per cycle, and the
shortest prefix that is enough.

Units are put in order greedily: what takes most of the remaining noise away per added cycle comes first. The
order rests on every unit's noise alone, which does not quite add up; so the prefix is looked for by
measuring mixtures, and the quantised network itself has the last word. Where widest integers fail, what they
fail at is left in float on the host. Where units may be in a float type of the NPU, the same is done with
that type in the place of the widest integers, and with it in the place of the host alone, at once or only
where integers do not do; of the results that hold the budget the cheapest is taken, and one that misses it
where the way to it gains too little for its cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Annotated

import numpy as np

from npuflow.base.tables import Range
from npuflow.ir.noise import ratio_decibels
from npuflow.strategies import FLOAT, NARROW, STRATEGIES, WIDE, Budget, Levels, Noise, Problem, Strategy
from npuflow.strategies import _tuned as tuned
from npuflow.strategies._order import by_gain

RUNGS = tuple(round(1.04**i, 3) for i in range(36))     # times the cycles: the prefixes that are tried


@STRATEGIES.entry
@dataclass(frozen=True)
class AutoStrategy(Strategy):
    """Corrections first, then widths: nothing is widened where the budget holds without it."""

    gain_db: Annotated[float, Range(0, 20)] = 1.0
    """Widening ends where a step gains fewer dB than this ..."""
    for_cycles: Annotated[float, Range(0.001, 1)] = 0.05
    """... for so large a share of the cycles."""

    def __call__(self, problem: Problem) -> Levels:
        narrow = (NARROW,) * len(problem.units)
        if not problem.units or problem.holds(narrow):
            return narrow
        worth, widest = self.gain_db / self.for_cycles, _widest(problem)
        found = [self._raised(problem, widest, worth)]
        if problem.floats_last and _integers_do(problem, found[0]):
            return _better(problem, found[0], narrow)
        for level in sorted({level for unit in problem.units for level in unit.floats}):
            units = zip(problem.units, widest, strict=True)
            upper = tuple(level if level in unit.floats else wide for unit, wide in units)
            found.append(self._raised(problem, upper, worth))
            found += self._beside(problem, level, worth)
        return _better(problem, _best(problem, found, worth) if found[1:] else found[0], narrow)

    def _raised(self, problem: Problem, upper: Levels, worth: float) -> Levels:
        """The cheapest mixture of the recipe's widths and `upper` that holds the budget, or the best."""
        first = _sensitive(problem, upper)
        # its figures are asked for where it misses the budget: not `holds`, which would run it twice
        if any(first) and problem.budget.holds(problem.verified(first)):
            return first
        start = self._in_float(problem, first) if set(upper) <= {NARROW, WIDE} else first
        return self._climbed(problem, start, upper, worth)

    def _climbed(self, problem: Problem, start: Levels, upper: Levels, worth: float) -> Levels:
        """The cheapest mixture of `start` and `upper` that holds the budget, or the best."""
        floor = problem.floor() if set(upper) <= {WIDE} else problem.floor(upper)
        order = self._order(problem, start, upper, floor, _missing(problem, start))
        return _Prefixes(problem, start, order, upper).shortest(worth)

    def _beside(self, problem: Problem, level: int, worth: float) -> list[Levels]:
        """Widest integers, and a float type of the NPU where these fail: none where they do not."""
        widest = _widest(problem)
        first = _sensitive(problem, widest)
        start = self._in_float(problem, first, level)
        return [] if start == first else [self._climbed(problem, start, widest, worth)]

    def _in_float(self, problem: Problem, first: Levels, level: int = FLOAT) -> Levels:
        """`first` with those activations in float at which the widest integers fail: on the host, as many as
        are not far too slow, or in a float type of the NPU."""
        budget, hosted = problem.budget, level == FLOAT
        wide = (WIDE,) * len(problem.units)
        found = problem.measured(wide)
        if budget.holds(found) or (hosted and budget.level(found) > _host_db(budget) - tuned.LADDER_FAILS):
            return first
        units = enumerate(problem.wide_noise())
        noise = {k: n for k, n in units if problem.units[k].kind == "activation"}
        total = np.sum(list(noise.values()), axis=0)
        if not hosted:
            noise = {k: n for k, n in noise.items() if level in problem.units[k].floats}
        chosen = by_gain(problem, wide, (level,) * len(wide), noise, total, _gains, 1.0)
        order = [k for k, db in takewhile(lambda one: one[1] > 0.0, chosen)]

        def left(count: int) -> Levels:
            chosen = set(order[:count])
            return tuple(level if k in chosen else WIDE for k in range(len(wide)))

        count, most = len(order), tuned.LADDER_DEAR * problem.cycles(wide)
        count = _least(lambda n: problem.promises(left(n)), 1, count)
        count = _least(lambda n: problem.cycles(left(n + 1)) > most, 0, count)
        worth = budget.level(found) + tuned.LADDER_FAILS
        if not order or budget.level(problem.measured(left(count))) < worth:
            return first
        return tuple(level if k in set(order[:count]) else before for k, before in enumerate(first))

    def _order(
        self, problem: Problem, start: Levels, upper: Levels, floor: Noise, missing: Sequence[int]
    ) -> list[int]:
        """Units that are narrow yet, by noise of the outputs `missing` taken away per cycle added. `floor`:
        the noise at `upper`."""
        floor = np.maximum(floor, 1e-7)
        noise = {
            k: problem.units[k].noise for k, level in enumerate(start) if level == NARROW != upper[k]
        }
        total = np.sum(list(noise.values()), axis=0) if noise else np.zeros_like(floor)

        def gains(total: Noise, parts: Noise) -> Noise:
            rest = np.maximum(total - parts, 0.0) + floor
            return ratio_decibels((total + floor) / rest)[:, :, missing].mean((1, 2))

        least = tuned.LADDER_LEAST * problem.cycles(start)
        return [k for k, _ in by_gain(problem, start, upper, noise, total, gains, least)]


def _widest(problem: Problem) -> Levels:
    """The widest integers of every unit that may have them."""
    return tuple(WIDE if WIDE in unit.candidates else NARROW for unit in problem.units)


def _sensitive(problem: Problem, upper: Levels) -> Levels:
    """The recipe's widths, and the upper levels of what is widened first."""
    return tuple(
        level if unit.sensitive else NARROW for unit, level in zip(problem.units, upper, strict=True)
    )


def _missing(problem: Problem, levels: Levels) -> list[int]:
    """The outputs, as noise counts them, that do not meet the budget; all of them where each does, or where
    the budget is of a metric."""
    outputs = [one for one in problem.verified(levels) if one.drop is None]
    found = [i for i, one in enumerate(outputs) if not problem.budget.met(one)]
    return found or list(range(len(outputs)))


def _better(problem: Problem, levels: Levels, narrow: Levels) -> Levels:
    """The mixture, unless it misses the budget and is no closer than the recipe's widths are."""
    budget, found = problem.budget, problem.verified(levels)
    closer = budget.holds(found) or budget.level(found) > budget.level(problem.verified(narrow))
    return levels if closer else narrow


@dataclass
class _Prefixes:
    """Mixtures in which the first so many units of an order are at their upper levels."""

    problem: Problem
    start: Levels
    order: Sequence[int]
    upper: Levels

    def levels(self, count: int) -> Levels:
        changed = list(self.start)
        for k in self.order[:count]:
            changed[k] = self.upper[k]
        return tuple(changed)

    @cached_property
    def rungs(self) -> list[int]:
        """Prefixes that cost about so many times the cycles of the shortest, and the whole order."""
        base = self.problem.cycles(self.start)
        levels, costs = self.start, [1.0]
        for k in self.order:
            costs.append(costs[-1] + self.problem.delta(levels, k, self.upper[k]) / base)
            levels = (*levels[:k], self.upper[k], *levels[k + 1 :])
        at = [max((n for n, cost in enumerate(costs) if cost <= times), default=0) for times in RUNGS]
        return sorted({*at, len(self.order)})

    def shortest(self, worth: float) -> Levels:
        """The cheapest rung that holds the budget, if the way there gains half of `worth` dB for as many
        cycles again as there are; else the one of most dB, less `worth` for as many cycles again."""
        problem, budget = self.problem, self.problem.budget
        base = problem.cycles(self.start)
        n = self._refined(self._cheapest())
        if n is not None:
            levels = _thinned(problem, self.levels(n))
            missing = budget.sqnr_db - budget.level(problem.verified(self.start))
            if missing >= tuned.LADDER_HALF * worth * (problem.cycles(levels) / base - 1):
                return levels
        costs = {m: problem.cycles(self.levels(m)) / base - 1 for m in self.rungs}
        gains = {
            n: min(problem.steady(self.levels(n)), budget.sqnr_db) - worth * costs[n] for n in self.rungs
        }
        best = self.levels(max(self.rungs, key=lambda n: gains[n]))
        better = budget.level(problem.verified(best)) > budget.level(problem.verified(self.start))
        return best if better else self.start

    def _cheapest(self) -> int | None:
        """The first rung that holds the budget, by the quantised network; from where fake
        quantisation says it is, down as long as it holds, or up by growing steps and back by halves.
        None where not even the last one does."""
        problem, last = self.problem, len(self.rungs) - 1

        def holds(place: int) -> bool:
            return problem.holds(self.levels(self.rungs[place]))

        guess = next(
            (i for i, n in enumerate(self.rungs) if problem.promises(self.levels(n))), last
        )
        if holds(guess):
            last = max(guess - tuned.LADDER_CHECKS, -1)
            below = (place for place in range(guess - 1, last, -1) if not holds(place))
            return self.rungs[next(below, last) + 1]
        fails, stride = guess, 1
        while fails < last and not holds(min(fails + stride, last)):
            fails, stride = min(fails + stride, last), 2 * stride
        if fails == last:
            return None
        found = min(fails + stride, last)
        while found - fails > 1:
            middle = (fails + found) // 2
            found, fails = (middle, fails) if holds(middle) else (found, middle)
        return self.rungs[found]

    def _refined(self, count: int | None) -> int | None:
        """A count between two rungs: halved as long as the budget holds."""
        if count is None:
            return None
        fails = max((n for n in self.rungs if n < count), default=count)
        for _ in range(tuned.LADDER_HALVES):
            middle = (fails + count + 1) // 2
            if middle == count:
                break
            if self.problem.holds(self.levels(middle)):
                count = middle
            else:
                fails = middle
        return count


def _thinned(problem: Problem, levels: Levels) -> Levels:
    """Narrow again, alone or with one neighbour, what is dear and hardly needed, as long as the budget holds.

    An order of units by gain per cycle leaves dear units at its end, and its last rung is coarse.
    """
    base, steady = problem.cycles(levels), problem.steady(levels)
    saved: dict[tuple[int, ...], float] = {}
    raised = {k for k, level in enumerate(levels) if level not in (NARROW, FLOAT)}
    for k in sorted(raised):
        fewer, alone = _narrowed(levels, (k,)), -problem.delta(levels, k, NARROW) / base
        saved[(k,)] = alone
        for j in problem.units[k].neighbours:
            if j > k and j in raised:
                saved[k, j] = alone - problem.delta(fewer, j, NARROW) / base
    worth = [some for some in saved if saved[some] >= tuned.LADDER_SAVES]
    dear = sorted(worth, key=lambda some: -saved[some])[: tuned.LADDER_TRIED]
    loss = {some: max(steady - problem.steady(_narrowed(levels, some)), 0.0) for some in dear}
    missed = 0
    for some in sorted(dear, key=lambda some: loss[some] / saved[some]):
        fewer = _narrowed(levels, some)
        if problem.cycles(fewer) > (1 - tuned.LADDER_SAVES) * problem.cycles(levels):
            continue
        if problem.holds(fewer):
            levels = fewer
        elif (missed := missed + 1) == tuned.LADDER_MISSES:
            break
    return levels


def _best(problem: Problem, found: Sequence[Levels], worth: float) -> Levels:
    """The one of most dB, up to those asked for, less half of `worth` for as many cycles again as the
    recipe's widths take: of those that hold the budget the cheapest."""
    budget, base = problem.budget, problem.cycles((NARROW,) * len(problem.units))

    def value(one: Levels) -> float:
        outputs = problem.verified(one)
        reached = budget.sqnr_db if budget.holds(outputs) else min(budget.level(outputs), budget.sqnr_db)
        return reached - tuned.LADDER_HALF * worth * (problem.cycles(one) / base - 1)

    return max(found, key=value)


def _integers_do(problem: Problem, levels: Levels) -> bool:
    """Whether these hold the budget without the host."""
    return FLOAT not in levels and problem.holds(levels)


def _narrowed(levels: Levels, units: Sequence[int]) -> Levels:
    changed = list(levels)
    for k in units:
        changed[k] = NARROW
    return tuple(changed)


def _host_db(budget: Budget) -> float:
    return budget.sqnr_db if budget.host_db is None else budget.host_db


def _least(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least count for which `holds`, taken to be monotone; `high` where none does."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _gains(total: Noise, parts: Noise) -> Noise:
    """Mean dB that taking a part of the noise away gains, of every part."""
    rest = np.maximum(total - parts, 0.0) + 1e-7
    return ratio_decibels((total + 1e-7) / rest).mean(tuple(range(1, parts.ndim)))
