"""Boxes that one core has stored to external memory: the last job that a load of
some of them has to wait for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npuflow.ir.space import Box, Interval
from npuflow.schedule.jobs import Outside

ANY = (-(1 << 60), 1 << 60)
LOOKED = 256                              # stored boxes that are looked through at once, from the last on


class Stored:
    """Boxes of values that share bytes in external memory, in the order in which one queue stores them."""

    def __init__(self) -> None:
        self._boxes: list[tuple[str, Box, Interval]] = []
        self._jobs: list[int] = []
        # boxes taken over, and room for more
        self._known: dict[tuple[str, int], tuple[int, npt.NDArray[np.int64]]] = {}
        self._asked: dict[Outside, tuple[int, int]] = {}            # (boxes looked through, the last job)

    def add(self, outside: Outside, job: int) -> None:
        self._boxes.append((outside.value, outside.box, outside.span))
        self._jobs.append(job)

    def last(self, outside: Outside) -> int:
        """The last job that stored some of a box, or -1; of other values, and without a
        box, spans of bytes decide."""
        key = _, value, box, span = outside
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
        """Spans and boxes, of so many dimensions, of all that has been stored, as a value's own
        boxes are compared with it."""
        known, table = self._known.get((value, size), (0, np.empty((LOOKED, size + 1, 2), np.int64)))
        fresh = [
            (s, *(b if v == value and len(b) == size else (ANY,) * size)) for v, b, s in self._boxes[known:]
        ]
        count = known + len(fresh)
        while count > len(table):
            table = np.concatenate([table, np.empty_like(table)])
        if fresh:
            table[known:count] = np.array(fresh, np.int64).reshape(len(fresh), size + 1, 2)
        self._known[value, size] = count, table
        return table[:count]
