"""Finds better addresses than a greedy layout: hill climbing, or an integer program.
The program proves the fewest bytes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import gcd
from typing import Literal

import numpy as np
import numpy.typing as npt

from npuflow.base.native_output import without_prints
from npuflow.schedule.allocate import Layout, Lifetime, aligned, in_order, place

Method = Literal["greedy", "climb", "exact"]
METHODS: tuple[Method, ...] = ("greedy", "climb", "exact")
CLIMBS = 400                              # orders tried by climbing
START = 4_000                             # orders tried before the solver begins
NODES = 300                               # of the solver's tree
PAIRS = 600                               # of lives that meet: a binary variable each
OPTIMAL, INFEASIBLE = 0, 2                # scipy's status codes


def arrange(lives: Sequence[Lifetime], align: int, method: Method = "greedy") -> Layout:
    """Addresses by one of METHODS. `proven` says whether fewer bytes are impossible."""
    found = place(lives, align)
    if method == "greedy" or found.total == found.bound:
        return replace(found, proven=found.total == found.bound)
    if method == "exact":
        return exact(lives, align, climb(lives, align, found, START))
    found = climb(lives, align, found)
    return replace(found, proven=found.total == found.bound)


def climb(lives: Sequence[Lifetime], align: int, best: Layout, tries: int = CLIMBS) -> Layout:
    """From the order of the best layout: what reaches the top is placed earlier; seeded, bounded by tries."""
    rng = random.Random(0)
    by_name = {v.name: v for v in lives}
    order = sorted(by_name, key=lambda n: (best.addresses[n], n))
    for _ in range(tries):
        if best.total == best.bound:
            break
        high = max(
            range(len(order)), key=lambda i: best.addresses[order[i]] + aligned(by_name[order[i]].size, align)
        )
        trial = list(order)
        if rng.random() < 0.5:
            trial.insert(rng.randint(0, high), trial.pop(high))
        else:
            i, j = rng.randrange(len(trial)), rng.randrange(len(trial))
            trial[i], trial[j] = trial[j], trial[i]
        addresses = in_order([by_name[n] for n in trial], align)
        total = max(addresses[v.name] + aligned(v.size, align) for v in lives)
        if total <= best.total:
            best, order = Layout(addresses, total, best.bound), trial
    return best


# --- dynamic storage allocation as an integer program, solved by HiGHS


def exact(lives: Sequence[Lifetime], align: int, best: Layout) -> Layout:
    """A layout of fewer bytes than `best`, or `best` itself; `proven` if the solver finished.

    The solver stops after NODES nodes and never by time, so that the result is the same on any machine. More
    than PAIRS pairs of lives are too many for it: `best` is returned.
    """
    if best.total == best.bound or not lives:
        return replace(best, proven=best.total == best.bound)
    problem = _Problem.of(lives, align)
    if len(problem.pairs) > PAIRS:
        return best
    status, addresses = problem.solve(best.bound // problem.unit, best.total // problem.unit - 1)
    if status == INFEASIBLE:
        return replace(best, proven=True)
    if addresses is None:
        return best
    found = problem.pushed_down(addresses)
    total = max(found[v.name] + aligned(v.size, align) for v in lives)
    if total >= best.total:
        return best
    return Layout(found, total, best.bound, proven=status == OPTIMAL or total == best.bound)


@dataclass(frozen=True)
class _Problem:
    """Minimise the top T. Address a[i] of every life; of every two that meet, one lies above the other:

    a[i] + s[i] <= a[j] + M * u        u = 0: i lies below j
    a[j] + s[j] <= a[i] + M * (1 - u)  u = 1: j lies below i
    """

    lives: Sequence[Lifetime]
    sizes: npt.NDArray[np.int64]  # in units
    unit: int  # bytes
    pairs: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, lives: Sequence[Lifetime], align: int) -> _Problem:
        sizes = [aligned(v.size, align) for v in lives]
        unit = reduce(gcd, sizes)
        pairs = [(i, j) for j in range(len(lives)) for i in range(j) if lives[i].meets(lives[j])]
        return cls(lives, np.array(sizes) // unit, unit, pairs)

    def solve(self, least: int, most: int) -> tuple[int, npt.NDArray[np.float64] | None]:
        """The solver's status, and addresses (in units) of a top between `least` and `most`."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import
        from scipy.sparse import csr_array

        count, pairs = len(self.lives), len(self.pairs)
        top, columns = count, count + 1 + pairs
        rows = 2 * pairs + count
        i, j = np.array(self.pairs, int).reshape(-1, 2).T
        below, above, u = np.arange(pairs), pairs + np.arange(pairs), count + 1 + np.arange(pairs)
        under_top, every = 2 * pairs + np.arange(count), np.arange(count)
        entries = [
            (below, i, 1),
            (below, j, -1),
            (below, u, -most),
            (above, j, 1),
            (above, i, -1),
            (above, u, most),
            (under_top, every, 1),
            (under_top, np.full(count, top), -1),
        ]
        matrix = csr_array(
            (
                np.concatenate([np.full(len(r), value, float) for r, _, value in entries]),
                (np.concatenate([r for r, _, _ in entries]), np.concatenate([c for _, c, _ in entries])),
            ),
            shape=(rows, columns),
        )
        upper = np.concatenate([-self.sizes[i], most - self.sizes[j], -self.sizes]).astype(float)
        lowest, highest = np.zeros(columns), np.ones(columns)
        highest[:count] = most - self.sizes
        lowest[top], highest[top] = least, most
        cost = np.zeros(columns)
        cost[top] = 1
        with without_prints():
            found = milp(
                cost,
                integrality=np.concatenate([np.zeros(count + 1), np.ones(pairs)]),
                bounds=Bounds(lowest, highest),
                constraints=LinearConstraint(matrix, -np.inf, upper),
                options={"node_limit": NODES, "mip_rel_gap": 0.0},
            )
        return found.status, None if found.x is None else found.x[:count]

    def pushed_down(self, addresses: npt.NDArray[np.float64]) -> dict[str, int]:
        """Every life, from the lowest address up, on the highest of those below it that it meets: whole units
        whatever the solver's tolerance."""
        tops = [0] * len(self.lives)
        placed: dict[str, int] = {}
        order = sorted(range(len(self.lives)), key=lambda i: (round(float(addresses[i]), 3), i))
        for number, i in enumerate(order):
            met = (tops[k] for k in order[:number] if self.lives[k].meets(self.lives[i]))
            address = max(met, default=0)
            tops[i] = address + int(self.sizes[i])
            placed[self.lives[i].name] = address * self.unit
        return placed
