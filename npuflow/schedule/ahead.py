"""Constants ahead of their use: addresses in local memory that let each come in as
early as its bytes are free.

Activations are placed first. Constants follow in the order of their use, each where the bytes have been free
the longest: over time they go round local memory as in a ring, but for what activations take.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from npuflow.schedule.allocate import Layout, Life, aligned, peak
from npuflow.schedule.arrange import Method, arrange


def go_round(
    lives: Sequence[Life], movable: Mapping[str, int], limit: int, align: int, method: Method = "greedy"
) -> tuple[list[Life], Layout] | None:
    """(lives, constants begun as early as they may; addresses), or None where constants
    find no room beside the rest."""
    fixed = [v for v in lives if v.name not in movable]
    addresses = dict(arrange(fixed, align, method).addresses) if fixed else {}
    ground = _Ground(
        _Lying(v.last, v.first, addresses[v.name], addresses[v.name] + aligned(v.size, align)) for v in fixed
    )
    found = {v.name: v for v in lives}
    for life in sorted((v for v in lives if v.name in movable), key=lambda v: v.first):
        own = ground.lay(life, aligned(life.size, align), movable[life.name], limit)
        if own is None:
            return None
        addresses[life.name], found[life.name] = own.low, replace(life, first=own.first)
    early = [found[v.name] for v in lives]
    return early, Layout(addresses, ground.high, peak(lives, align))


class _Lying(NamedTuple):
    """What lies between two addresses, from step `first` to step `last`."""

    last: int
    first: int
    low: int
    high: int


class _Ground:
    """Local memory in stretches, each free from some step on, for constants in the order of their use."""

    def __init__(self, fixed: Iterable[_Lying]) -> None:
        self.lying = list(fixed)                             # a heap of what is not through yet
        heapq.heapify(self.lying)
        self.high = max((v.high for v in self.lying), default=0)
        self.starts = np.array(sorted({0, *(v.high for v in self.lying)}), np.int64)
        self.cuts = np.array(sorted({0, *(a for v in self.lying for a in (v.low, v.high))}), np.int64)
        # by stretch, the step behind the last that is through
        self.through = np.zeros(len(self.cuts), np.int64)
        # the same, or the step behind `now` where something lies
        self.free, self.now = self.through, (-1, -1)

    def lay(self, life: Life, size: int, least: int, limit: int) -> _Lying | None:
        """Where the bytes have been free the longest, since `least` or later; None
        where something lies everywhere."""
        self._come((life.first, life.last))
        starts = self.starts[: np.searchsorted(self.starts, limit - size, "right")]
        if not len(starts):
            return None
        ends = np.stack(
            [np.searchsorted(self.cuts, starts), np.searchsorted(self.cuts, starts + size)], axis=1
        )
        since = np.maximum(np.maximum.reduceat(np.append(self.free, 0), ends.ravel())[::2], least)
        at = int(since.argmin())                             # the first of equals is the lowest
        if since[at] > life.first:
            return None
        own = _Lying(life.last, int(since[at]), int(starts[at]), int(starts[at]) + size)
        heapq.heappush(self.lying, own)
        self._cut(own.low)
        self._cut(own.high)
        self.free[self._stretches(own)] = life.first + 1
        self.high = max(self.high, own.high)
        place = int(np.searchsorted(self.starts, own.high))
        if place == len(self.starts) or self.starts[place] != own.high:
            self.starts = np.insert(self.starts, place, own.high)
        return own

    def _come(self, now: tuple[int, int]) -> None:
        """On to the next steps."""
        if now == self.now:
            return
        self.now = first, last = now
        while self.lying and self.lying[0].last < first:
            gone = heapq.heappop(self.lying)
            own = self._stretches(gone)
            self.through[own] = np.maximum(self.through[own], gone.last + 1)
        self.free = self.through.copy()
        for other in self.lying:
            if other.first <= last:
                self.free[self._stretches(other)] = first + 1

    def _stretches(self, lying: _Lying) -> slice:
        low, high = np.searchsorted(self.cuts, (lying.low, lying.high))
        return slice(int(low), int(high))

    def _cut(self, address: int) -> None:
        """A stretch begins at an address."""
        place = int(np.searchsorted(self.cuts, address))
        if place == len(self.cuts) or self.cuts[place] != address:
            self.cuts = np.insert(self.cuts, place, address)
            self.through = np.insert(self.through, place, self.through[place - 1])
            self.free = np.insert(self.free, place, self.free[place - 1])
