"""Better addresses than a greedy layout finds: by climbing over orders, or by a search
that proves the fewest bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from npuflow.engine.allocate import Layout, Life, aligned, in_order, place

Method = Literal["greedy", "climb", "exact"]
METHODS: tuple[Method, ...] = ("greedy", "climb", "exact")
CLIMBS = 400                              # orders tried by climbing
NODES = 60_000                            # partial layouts looked at by the exact search
MOST = 300                                # lives that the exact search takes on


def arrange(lives: Sequence[Life], align: int, method: Method = "greedy") -> Layout:
    """Addresses by one of METHODS. `proven` says whether fewer bytes are impossible."""
    found = place(lives, align)
    if method == "greedy" or found.total == found.bound:
        return replace(found, proven=found.total == found.bound)
    found = climb(lives, align, found)
    if method == "exact" and len(lives) <= MOST:
        return _Exact(lives, align, found).run()
    return replace(found, proven=found.total == found.bound)


def climb(lives: Sequence[Life], align: int, best: Layout) -> Layout:
    """From the order of the best layout: what reaches the top is placed earlier; seeded, bounded by tries."""
    rng = random.Random(0)
    by_name = {v.name: v for v in lives}
    order = sorted(by_name, key=lambda n: (best.addresses[n], n))
    for _ in range(CLIMBS):
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


class _Exact:
    """Branch and bound. Pushed down, every life lies at 0 or on one that it meets; so lives are placed from
    the lowest address to the highest (equal ones by number), each on the highest of those it meets. A step's
    top plus what is still to lie there bounds the rest."""

    def __init__(self, lives: Sequence[Life], align: int, best: Layout) -> None:
        self.lives = sorted(lives, key=lambda v: (-v.size * (v.last - v.first + 1), v.first, v.name))
        steps = sorted({t for v in lives for t in (v.first, v.last)})
        index = {t: i for i, t in enumerate(steps)}
        self.spans = [range(index[v.first], index[v.last] + 1) for v in self.lives]
        self.sizes = [aligned(v.size, align) for v in self.lives]
        self.best, self.nodes = best, 0
        self.tops = [0] * len(steps)
        self.rest = [
            sum(s for s, r in zip(self.sizes, self.spans, strict=True) if t in r) for t in range(len(steps))
        ]
        self.at: dict[int, int] = {}

    def run(self) -> Layout:
        self._place(0, -1)
        return replace(self.best, proven=self.nodes < NODES or self.best.total == self.best.bound)

    def _place(self, least: int, behind: int) -> None:
        if self.nodes >= NODES or self.best.total == self.best.bound:
            return
        self.nodes += 1
        if len(self.at) == len(self.lives):
            total = max(self.tops, default=0)
            self.best = Layout({self.lives[i].name: a for i, a in self.at.items()}, total, self.best.bound)
            return
        if any(
            max(top, least if rest else 0) + rest >= self.best.total
            for top, rest in zip(self.tops, self.rest, strict=True)
        ):
            return
        open_ = [i for i in range(len(self.lives)) if i not in self.at]
        tried: set[tuple[range, int]] = set()
        for address, i in sorted((max(self.tops[t] for t in self.spans[i]), i) for i in open_):
            same = self.spans[i], self.sizes[i]
            if (address, i) <= (least, behind) or same in tried:
                continue
            tried.add(same)
            before = [self.tops[t] for t in self.spans[i]]
            for t in self.spans[i]:
                self.tops[t], self.rest[t] = address + self.sizes[i], self.rest[t] - self.sizes[i]
            self.at[i] = address
            self._place(address, i)
            del self.at[i]
            for t, top in zip(self.spans[i], before, strict=True):
                self.tops[t], self.rest[t] = top, self.rest[t] + self.sizes[i]
