"""Idle processors of this process, lent to a step that does the same with many samples.

Steps of a build follow each other, and most of the time of a default build is one step that runs a network on
sample after sample while the other processors wait. Results do not depend on how many threads there are: each
sample is computed by one of them, and the results are in the samples' order.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from typing import Generic, TypeVar

from npuflow.base.forked import renewed_in_children

T = TypeVar("T")
R = TypeVar("R")

ROOM = 1 << 29                            # bytes that calls on other processors may take together
WORTH = 1 << 19                           # bytes of a call: it takes long enough for another thread to gain


@dataclass(slots=True)
class StepTime:
    """What a step took: seconds of the processor, in its own thread and in those that were lent to it."""

    seconds: float = 0.0


class Processors:
    """`count`: threads that may compute at the same time; one, unless who starts steps says otherwise."""

    def __init__(self) -> None:
        self.count = 1
        self._busy = 0
        self._lock = threading.Lock()
        self._own = threading.local()
        renewed_in_children(self)

    def forked(self) -> None:
        """In a forked process: none of the parent's steps runs here."""
        self._busy, self._lock = 0, threading.Lock()

    @contextmanager
    def at_work(self) -> Iterator[StepTime]:
        """A step computes in this thread; at the end it is known how long."""
        before, found, begun = self._step(), StepTime(), time.thread_time()
        self._own.step = found
        with self._lock:
            self._busy += 1
        try:
            yield found
        finally:
            found.seconds += time.thread_time() - begun
            self._own.step = before
            with self._lock:
                self._busy -= 1

    def _step(self) -> StepTime | None:
        """What this thread computes for."""
        found: StepTime | None = getattr(self._own, "step", None)
        return found

    def all_of(self, function: Callable[[T], R], items: Sequence[T], each: int) -> list[R]:
        """The function's result of every item, in their order. It computes without Python's lock most of the
        time, and may run in several threads at once. `each`: bytes of memory that a call takes, roughly. Of
        errors the first item's is raised, as if the items had come one by one."""
        step = self._step()
        most = min(len(items), 1 + ROOM // each if each else len(items))
        worth = step is not None and self.count > 1 and each >= WORTH
        taken = self._take(most - 1) if worth else 0
        if not taken:
            return [function(item) for item in items]
        shared = _Shared(function, items)
        try:
            shared.run(taken)
        finally:
            if step is not None:
                step.seconds += shared.seconds
            with self._lock:
                self._busy -= taken
        return shared.found()

    def _take(self, most: int) -> int:
        """Mark up to so many idle processors as busy; how many."""
        with self._lock:
            taken = max(min(most, self.count - self._busy), 0)
            self._busy += taken
        return taken


class _Shared(Generic[T, R]):
    """Items that several threads take one after another."""

    def __init__(self, function: Callable[[T], R], items: Sequence[T]) -> None:
        self.function, self.items = function, items
        self.ends, self.seconds = False, 0.0
        self._next = itertools.count()
        self._found: dict[int, R] = {}
        self._errors: dict[int, BaseException] = {}
        self._lock = threading.Lock()

    def run(self, helpers: int) -> None:
        """In this thread and so many others."""
        threads = [
            threading.Thread(target=copy_context().run, args=(self._help,), daemon=True)
            for _ in range(helpers)
        ]
        for one in threads:
            one.start()
        try:
            self._work()
        finally:
            self.ends = True                  # after an interrupt the others end behind what they are at
            for one in threads:
                one.join()

    def _help(self) -> None:
        begun = time.thread_time()
        self._work()
        with self._lock:
            self.seconds += time.thread_time() - begun

    def _work(self) -> None:
        while not self.ends:
            place = next(self._next)
            if place >= len(self.items):
                break
            try:
                self._found[place] = self.function(self.items[place])
            except Exception as error:
                self._errors[place] = error
                self.ends = True

    def found(self) -> list[R]:
        if self._errors:
            raise self._errors[min(self._errors)]
        return [self._found[place] for place in range(len(self.items))]


PROCESSORS = Processors()
