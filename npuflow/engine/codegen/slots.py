"""Ranges of local memory and who touched which box of them: what a later command must wait for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from npuflow.ir.space import Box

Tokens = dict[int, int]                 # queue -> retired commands of it that must be waited for


def merge(into: Tokens, other: Mapping[int, int]) -> None:
    for queue, count in other.items():
        if count > into.get(queue, 0):
            into[queue] = count


class _Access(NamedTuple):
    box: Box | None                     # None: all of it
    queue: int
    upto: int
    write: bool


class Slot:
    """A range of local memory with what was last done to it, box by box of the tensor that lies there now."""

    __slots__ = ("_before", "_log", "high", "low")

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high
        self._before: Tokens = {}
        self._log: list[_Access] = []

    def renew(self) -> None:
        """Another tensor, or another box of it, comes to lie here: whoever writes waits for all that was done before."""
        self._before = self.everything()
        self._log = []

    def everything(self) -> Tokens:
        found = dict(self._before)
        for a in self._log:
            merge(found, {a.queue: a.upto})
        return found

    def inherit(self, other: Slot) -> None:
        merge(self._before, other.everything())

    def needs(self, box: Box | None, write: bool) -> Tokens:
        found: Tokens = dict(self._before) if write else {}
        for a in self._log:
            if (write or a.write) and a.upto > found.get(a.queue, 0) and _meet(a.box, box):
                found[a.queue] = a.upto
        return found

    def note(self, box: Box | None, write: bool, queue: int, count: int) -> None:
        """A write stands for all that it covers, for it waited for it; a read for earlier reads by its queue."""
        self._log = [a for a in self._log if not (_covers(box, a.box) and (write or (a.queue == queue and not a.write)))]
        self._log.append(_Access(box, queue, count, write))


def _meet(a: Box | None, b: Box | None) -> bool:
    if a is None or b is None:
        return True
    return all(p < s and r < q for (p, q), (r, s) in zip(a, b, strict=True))


def _covers(outer: Box | None, inner: Box | None) -> bool:
    if outer is None or inner is None:
        return outer is None
    return all(p <= r and s <= q for (p, q), (r, s) in zip(outer, inner, strict=True))


class LocalMap:
    """Slots of one core's local memory; a new slot inherits what was done to the bytes it covers."""

    def __init__(self) -> None:
        self._slots: list[Slot] = []

    def open(self, low: int, size: int) -> Slot:
        high, fresh, kept = low + size, Slot(low, low + size), []
        for old in self._slots:
            if old.high <= low or high <= old.low:
                kept.append(old)
                continue
            fresh.inherit(old)
            for a, b in ((old.low, low), (high, old.high)):
                if a < b:
                    rest = Slot(a, b)
                    rest.inherit(old)
                    kept.append(rest)
        self._slots = [*kept, fresh]
        return fresh
