"""Finds better addresses than a greedy layout: hill climbing, or an integer program.
The program proves the fewest bytes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from npuflow.schedule.allocate import Layout, Lifetime, aligned, in_order, place

Method = Literal["greedy", "climb", "exact"]
METHODS: tuple[Method, ...] = ("greedy", "climb", "exact")
CLIMBS = 400                              # orders tried by climbing
START = 4_000                             # orders tried before the solver begins


def arrange(lives: Sequence[Lifetime], align: int, method: Method = "greedy") -> Layout:
    """Addresses by one of METHODS. `proven` says whether fewer bytes are impossible."""
    found = place(lives, align)
    if method == "greedy" or found.total == found.bound:
        return replace(found, proven=found.total == found.bound)
    if method == "exact":
        from npuflow.schedule.arrange_exact import exact  # scipy's solver is slow to import

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
