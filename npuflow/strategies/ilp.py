"""An integer program: the cheapest widths whose noise, added up, stays below a bound, for many bounds.

Solved by HiGHS (scipy.optimize.milp), which stops by nodes and by its gap, never by time. A layer is as slow
as its widest operand, so prices do not add up over units: the program has a term for every pair of units
whose prices depend on each other, taken around a mixture. Where the price of its solution is not what it
predicts, it is solved again around that solution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from npuflow.base.native_output import without_prints
from npuflow.base.tables import Range
from npuflow.strategies import STRATEGIES, Levels, Problem
from npuflow.strategies import _tuned as tuned
from npuflow.strategies._front import TINY, Additive, FrontStrategy, Reals, pareto, prices
from npuflow.strategies._steps import steps

NEGLIGIBLE, BEYOND = 1e-7, 2.0             # of a bound of the noise: coefficients of the integer program


@dataclass(frozen=True)
class LocalPrices:
    """Prices around a mixture: what it costs, what each unit adds, and what pairs add beyond that."""

    at: Levels
    base: float
    alone: tuple[Mapping[int, float], ...]
    pairs: Mapping[tuple[int, int], Reals]

    @classmethod
    def around(cls, problem: Problem, at: Levels) -> LocalPrices:
        """Every price that one or two changes lead to."""
        units = problem.units
        alone = tuple(prices(problem, at, k) for k in range(len(units)))
        pairs: dict[tuple[int, int], Reals] = {}
        base = problem.price(at)
        for k, unit in enumerate(units):
            near = [j for j in unit.neighbours if j > k]
            found = {j: np.zeros((len(unit.candidates), len(units[j].candidates))) for j in near}
            for i, level in enumerate(unit.candidates):
                if level == at[k]:
                    continue
                changed = (*at[:k], level, *at[k + 1 :])
                for j in near:
                    joint = prices(problem, changed, j)
                    found[j][i] = [joint[c] - alone[j][c] for c in units[j].candidates]
            least = tuned.PRICE_COUPLED * base
            pairs |= {(k, j): d for j, d in found.items() if float(np.abs(d).max()) > least}
        return cls(at, base, alone, pairs)

    def predicted(self, units: Sequence[Sequence[int]], levels: Levels) -> float:
        """The price of a mixture by these terms; `units`: the candidates of each."""
        places = [units[k].index(level) for k, level in enumerate(levels)]
        added = sum(self.alone[k][level] for k, level in enumerate(levels))
        return self.base + added + float(sum(d[places[k], places[j]] for (k, j), d in self.pairs.items()))


@STRATEGIES.entry
@dataclass(frozen=True)
class Ilp(FrontStrategy):
    """Integer programs for a row of noise bounds, between the fewest and the most bits everywhere."""

    bounds: Annotated[int, Range(1, 200)] = 24
    """Noise bounds, evenly spaced in dB."""
    rounds: Annotated[int, Range(1, 20)] = 3
    """Times that a program is solved, at most."""
    nodes: Annotated[int, Range(1, None)] = 2000
    """Nodes of branch and bound, at most."""
    gap: Annotated[float, Range(0, 1)] = 1e-3
    """Relative gap to the bound at which a solution is taken."""

    def front(self, problem: Problem) -> Sequence[Levels]:
        additive = Additive(problem)
        if not problem.units:
            return [()]
        low, high = (max(additive.error(one), TINY) for one in (additive.most, additive.least))
        start = pareto(problem, steps(problem))
        spread = {round(i * (len(start) - 1) / (tuned.PRICE_ANCHORS - 1)) for i in range(tuned.PRICE_ANCHORS)}
        anchors = {i: LocalPrices.around(problem, start[i]) for i in sorted(spread)}
        found: list[Levels] = [*start, additive.most]
        for bound in np.geomspace(high, low, self.bounds + 1):
            at = next((i for i, one in enumerate(start) if additive.error(one) <= bound * (1 + 1e-9)), None)
            first = additive.most if at is None else start[at]
            place = len(start) - 1 if at is None else at
            near = min(anchors, key=lambda i, wanted=place: abs(i - wanted))  # type: ignore[misc]
            found += self._below(additive, float(bound), first, anchors[near])
        return pareto(problem, found)

    def _below(self, additive: Additive, bound: float, first: Levels, local: LocalPrices) -> Iterator[Levels]:
        """Mixtures below a bound of the noise, each cheaper than the last; `first` is below it. And of those
        that are as cheap as the last, the most accurate."""
        problem, best = additive.problem, first
        candidates = [unit.candidates for unit in problem.units]
        for _ in range(self.rounds):
            solved = self._solved(additive, bound, local)
            if solved is None:
                break
            price = problem.price(solved)
            if price < problem.price(best) - 1e-12:
                best = solved
                yield best
            missed = abs(local.predicted(candidates, solved) - price)
            if missed <= tuned.PRICE_CLOSE * price or solved == local.at:
                break
            local = LocalPrices.around(problem, solved)
        finer = self._solved(additive, bound, local, best)
        if finer is not None and problem.price(finer) <= problem.price(best) * (1 + 1e-9):
            yield finer

    def _solved(
        self, additive: Additive, bound: float, local: LocalPrices, than: Levels | None = None
    ) -> Levels | None:
        """The cheapest widths by the prices of `local`; None: none was found. `than`: the least noise
        instead, for the price of that mixture."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        problem = additive.problem
        program = _Program(problem, local)
        noise = program.noise(additive, bound)
        constraints = [
            LinearConstraint(program.matrix, program.right, program.right),
            LinearConstraint(noise, -np.inf, 1.0),
        ]
        if than is not None:
            now = local.predicted([unit.candidates for unit in problem.units], than) - local.base
            most = now / program.unit + 1e-9
            constraints.append(LinearConstraint(program.price[None], -np.inf, most))
        with without_prints():
            found = milp(
                program.price if than is None else noise.sum(0),
                constraints=constraints,
                integrality=program.whole,
                bounds=Bounds(0, 1),
                options={"node_limit": self.nodes, "mip_rel_gap": self.gap},
            )
        if found.x is None:
            return None
        levels = list(local.at)
        for (k, level), taken in zip(program.columns, found.x, strict=False):
            if taken > 0.5:
                levels[k] = level
        chosen = tuple(levels)
        return chosen if additive.error(chosen) <= bound * (1 + 1e-6) else None


class _Program:
    """The columns of an integer program: a binary one for each unit and candidate, then one between 0 and 1
    for each joint choice of a coupled pair. Rows: a unit has one width; the joint choices of a pair with one
    level of either unit sum up to that level's column."""

    def __init__(self, problem: Problem, local: LocalPrices) -> None:
        from scipy.sparse import coo_matrix

        units = problem.units
        self.columns = [(k, level) for k, unit in enumerate(units) for level in unit.candidates]
        first = np.cumsum([0, *(len(unit.candidates) for unit in units)])
        entries: list[tuple[int, int, float]] = []
        price = [local.alone[k][level] for k, level in self.columns]
        for i, (k, _) in enumerate(self.columns):
            entries.append((k, i, 1.0))
        right, row, column = [1.0] * len(units), len(units), len(self.columns)
        for (k, j), joint in local.pairs.items():
            shape = joint.shape
            price += joint.reshape(-1).tolist()
            cells = column + np.arange(joint.size).reshape(shape)
            for sums, start in ((cells, first[k]), (cells.T, first[j])):
                for i, some in enumerate(sums):
                    entries += [(row, int(c), 1.0) for c in some]
                    entries.append((row, int(start) + i, -1.0))
                    right.append(0.0)
                    row += 1
            column += joint.size
        rows, at, values = zip(*entries, strict=True)
        self.matrix = coo_matrix((values, (rows, at)), shape=(row, column)).tocsr()
        self.right = np.array(right)
        self.unit = max(float(np.abs(price).max()), TINY)
        self.price = np.array(price) / self.unit
        self.whole = np.r_[np.ones(len(self.columns)), np.zeros(column - len(self.columns))]

    def noise(self, additive: Additive, bound: float) -> Reals:
        """By output and column the noise, in units of the bound. What is far beyond it cannot be chosen
        however far: large coefficients would only widen the solver's tolerances."""
        own = np.stack([additive.noise(k, level) for k, level in self.columns], axis=1) / bound
        own = np.where(own < NEGLIGIBLE, 0.0, np.minimum(own, BEYOND))
        return np.concatenate([own, np.zeros((len(own), len(self.price) - len(self.columns)))], axis=1)
