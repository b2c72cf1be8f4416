"""Areas of one core's local memory over time: which job last touched which box of what lies there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from npuflow.engine.closed.banks import Touched
from npuflow.ir.space import Box, Interval, elements

ANY = (-(1 << 60), 1 << 60)
LOOKED = 256                              # stored boxes that are looked through at once, from the last on
NO_BOX: Box = ()
Latest = dict[int, int]                   # queue -> the last job of it; jobs of a queue end in order


class _Touch(NamedTuple):
    box: Box | None                       # None: all of it
    queue: int
    job: int
    writes: bool


class Area:
    """A range of local memory with the accesses to what lies there now, and the last ones to what lay there before.

    What lies there: a box of a value, row after row, or so many bytes from the first on.
    """

    __slots__ = ("_all", "_before", "_item", "_laid", "_touches", "high", "low")

    def __init__(self, low: int, high: int, before: Latest) -> None:
        self.low, self.high, self._before = low, high, before
        self._touches: list[_Touch] = []
        self._laid, self._item = NO_BOX, 1
        self._all = Touched(low, high, high - low)

    def lay(self, box: Box, item: int) -> None:
        """The box that a value's bytes are laid out for here, and those of an element."""
        self._laid, self._item = box, item

    def touched(self, box: Box | None) -> Touched:
        """The bytes of a box of what lies here."""
        if box is None or len(box) != len(self._laid):
            return self._all
        first = last = 0
        for (a, b), (low, high) in zip(box, self._laid, strict=True):
            first, last = first * (high - low) + a - low, last * (high - low) + b - 1 - low
        return Touched(self.low + first * self._item, self.low + (last + 1) * self._item, elements(box) * self._item)

    def last(self) -> Latest:
        found = dict(self._before)
        for _, queue, job, _ in self._touches:
            if job > found.get(queue, -1):
                found[queue] = job
        return found

    def renew(self, size: int) -> None:
        """Something else comes to lie here: so many bytes."""
        self._before, self._touches = self.last(), []
        if size != self._all.bytes:
            self._all = Touched(self.low, self.low + size, size)

    def before_read(self, box: Box | None, into: Latest) -> None:
        for other, queue, job, writes in self._touches:
            if writes and job > into.get(queue, -1) and meet(other, box):
                into[queue] = job

    def before_write(self, box: Box | None, into: Latest) -> None:
        for queue, job in self._before.items():
            if job > into.get(queue, -1):
                into[queue] = job
        for other, queue, job, _ in self._touches:
            if job > into.get(queue, -1) and meet(other, box):
                into[queue] = job

    def touch(self, box: Box | None, queue: int, job: int, writes: bool) -> None:
        """A write follows all that met its box; a read only what its own queue read there."""
        if not self._touches or (writes and box is None):
            self._touches = [_Touch(box, queue, job, writes)]
            return
        self._touches = [
            t for t in self._touches if not ((writes or (t[1] == queue and not t[3])) and (box is None or _within(t[0], box)))
        ]
        self._touches.append(_Touch(box, queue, job, writes))


class Stored:
    """Boxes of values that share bytes in external memory, in the order in which one queue stores them."""

    def __init__(self) -> None:
        self._boxes: list[tuple[str, Box, Interval]] = []
        self._jobs: list[int] = []
        self._known: dict[tuple[str, int], tuple[int, npt.NDArray[np.int64]]] = {}    # boxes taken over, and room for more
        self._asked: dict[tuple[str, Box, Interval], tuple[int, int]] = {}            # (boxes looked through, the last job)

    def add(self, value: str, box: Box, span: Interval, job: int) -> None:
        self._boxes.append((value, box, span))
        self._jobs.append(job)

    def last(self, value: str, box: Box, span: Interval) -> int:
        """The last job that stored some of a box, or -1; of other values, and without a box, spans of bytes decide."""
        key = value, box, span
        looked, job = self._asked.get(key, (0, -1))       # the same is loaded again and again
        if looked < len(self._jobs):
            job = max(job, self._since(looked, value, box, span))
            self._asked[key] = len(self._jobs), job
        return job

    def _since(self, first: int, value: str, box: Box, span: Interval) -> int:
        both, own = self._table(value, len(box)), np.array((span, *box), np.int64)
        for end in range(len(both), first, -LOOKED):
            part = both[max(first, end - LOOKED) : end]
            found = np.flatnonzero(((part[..., 0] < own[:, 1]) & (own[:, 0] < part[..., 1])).all(1))
            if len(found):
                return self._jobs[end - len(part) + int(found[-1])]
        return -1

    def _table(self, value: str, size: int) -> npt.NDArray[np.int64]:
        """Spans and boxes, of so many dimensions, of all that has been stored, as a value's own boxes are compared with it."""
        known, table = self._known.get((value, size), (0, np.empty((LOOKED, size + 1, 2), np.int64)))
        fresh = [(s, *(b if v == value and len(b) == size else (ANY,) * size)) for v, b, s in self._boxes[known:]]
        count = known + len(fresh)
        while count > len(table):
            table = np.concatenate([table, np.empty_like(table)])
        if fresh:
            table[known:count] = np.array(fresh, np.int64).reshape(len(fresh), size + 1, 2)
        self._known[value, size] = count, table
        return table[:count]


class Areas:
    """The areas of one core that have been opened."""

    def __init__(self) -> None:
        self._areas: list[Area] = []

    def open(self, low: int, size: int) -> Area:
        high, rest = low + size, []
        before: Latest = {}
        for other in self._areas:
            if other.low < high and low < other.high:
                before = latest(other.last().items(), before)
            if not (low <= other.low and other.high <= high):
                rest.append(other)
        found = Area(low, high, before)
        self._areas = [*rest, found]
        return found


def latest(found: Iterable[tuple[int, int]], known: Latest | None = None) -> Latest:
    result = dict(known or ())
    for queue, job in found:
        if job > result.get(queue, -1):
            result[queue] = job
    return result


def meet(a: Box | None, b: Box | None) -> bool:
    if a is None or b is None:
        return True
    for (p, q), (r, s) in zip(a, b, strict=True):  # noqa: SIM110  a replay asks for half a million: no generators
        if p >= s or r >= q:
            return False
    return True


def _within(inner: Box | None, outer: Box | None) -> bool:
    if inner is None or outer is None:
        return outer is None
    if inner is outer:
        return True
    for (a, b), (c, d) in zip(inner, outer, strict=True):  # noqa: SIM110
        if a < c or d < b:
            return False
    return True
