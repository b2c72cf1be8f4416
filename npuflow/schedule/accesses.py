"""Who has touched what lies in local memory: which jobs or commands a later one has to wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from npuflow.ir.space import Box
from npuflow.schedule.banks import Touched
from npuflow.schedule.jobs import Allocation

# queue -> the last of it that must be waited for; a queue keeps its order
Latest = dict[int, int]


def merge(into: Latest, other: Mapping[int, int]) -> None:
    for queue, number in other.items():
        if number > into.get(queue, -1):
            into[queue] = number


class _Touch(NamedTuple):
    box: Box | None                       # None: all of it
    queue: int
    number: int
    writes: bool


Region = tuple[int, int, Latest]          # first and last byte of what was replaced, its last accesses


class Accesses:
    """Accesses to one allocation, box by box, and the last ones to what it replaced."""

    __slots__ = ("_before", "_touches", "regions")

    def __init__(self, regions: Sequence[Region]) -> None:
        self.regions, self._before = regions, Latest()
        for _, _, last in regions:
            merge(self._before, last)
        self._touches: list[_Touch] = []

    @property
    def touched(self) -> bool:
        return bool(self._touches)

    def last(self) -> Latest:
        found = dict(self._before)
        for _, queue, number, _ in self._touches:
            if number > found.get(queue, -1):
                found[queue] = number
        return found

    # the last ones first: what comes before them in their queue need not be compared
    def before_read(self, box: Box | None, into: Latest) -> None:
        for other, queue, number, writes in reversed(self._touches):
            if writes and number > into.get(queue, -1) and meet(other, box):
                into[queue] = number

    def before_write(self, box: Box | None, into: Latest) -> None:
        for queue, number in self._before.items():
            if number > into.get(queue, -1):
                into[queue] = number
        for other, queue, number, _ in reversed(self._touches):
            if number > into.get(queue, -1) and meet(other, box):
                into[queue] = number

    def before_part(self, part: Touched, box: Box | None, into: Latest) -> None:
        """As `before_write` of a box, which waits for what was replaced in its own bytes alone."""
        for low, high, last in self.regions:
            if low < part.high and part.low < high:
                merge(into, last)
        for other, queue, number, _ in reversed(self._touches):
            if number > into.get(queue, -1) and meet(other, box):
                into[queue] = number

    def touch(self, box: Box | None, queue: int, number: int, writes: bool) -> None:
        """A write stands for all that it covers, for it waited for it; a read for
        earlier reads of the same box by its queue."""
        own = _Touch(box, queue, number, writes)
        if not self._touches or (writes and box is None):
            self._touches = [own]
            return
        if writes:
            self._touches = [t for t in self._touches if not covers(box, t[0])]
        else:
            for n, (other, by, _, wrote) in enumerate(self._touches):
                if by == queue and not wrote and other == box:
                    self._touches[n] = own
                    return
        self._touches.append(own)


class LocalAccesses(dict[Allocation, Accesses]):
    """Accesses to one core's local memory by allocation; a new one begins with the last
    accesses to what it replaces."""

    def __missing__(self, key: Allocation) -> Accesses:
        open_ = [key]
        while open_:
            top = open_[-1]
            older = [a for a in top.replaces if a not in self]
            if older:
                open_ += older
                continue
            regions: list[Region] = []
            for a in top.replaces:
                regions += [(a.low, a.high, self[a].last())] if self[a].touched else self[a].regions
            self[top] = Accesses(regions)
            open_.pop()
        return self[key]


def meet(a: Box | None, b: Box | None) -> bool:
    if a is None or b is None:
        return True
    # asked for half a million times: no generators
    for (p, q), (r, s) in zip(a, b, strict=True):  # noqa: SIM110
        if p >= s or r >= q:
            return False
    return True


def covers(outer: Box | None, inner: Box | None) -> bool:
    """Whether a box has all of another one."""
    if inner is None or outer is None:
        return outer is None
    if inner is outer:
        return True
    for (a, b), (c, d) in zip(inner, outer, strict=True):  # noqa: SIM110
        if a < c or d < b:
            return False
    return True
