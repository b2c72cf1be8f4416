"""Requests that wait for a runner: as many as fit a batch run together, none after its deadline."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

from npuflow.base.errors import UsageError
from npuflow.base.forked import renewed_in_children
from npuflow.runner.ports import Array, Sample

Outputs = dict[str, Array]
Run = Callable[[Sequence[Sample]], list[Outputs]]
Feed = Callable[[Sample], Sample]


class Answer(Future[Outputs]):
    """The outputs to come of one request."""

    def forked(self) -> None:
        """In a forked process: keep what has come, and end what no thread of this process computes. A thread
        of the parent may have held the lock."""
        if self._state in ("PENDING", "RUNNING"):
            super().__init__()  # without the callbacks, which are the parent's
            self.set_exception(forked_runner())
        else:
            self._condition = threading.Condition()


@dataclass(frozen=True)
class QueuedSample:
    """One sample, and who waits for it."""

    sample: Sample
    future: Answer = field(default_factory=Answer)
    since: float = field(default_factory=time.monotonic)


def closed_runner() -> UsageError:
    """The error of everything that is asked of a runner after its end."""
    return UsageError(
        "the runner is closed",
        because="its `with` block ended, or close() was called",
        hint="run inside the `with` block, or make another npuflow.Runner",
        code="NF-RUN-007",
    )


def forked_runner() -> UsageError:
    """The error of a request in a process that was forked after it was made."""
    return UsageError(
        "the request belongs to the process that this one was forked from",
        because="its threads compute what was submitted; a fork has none of them",
        hint="submit it again here, or wait for its result before the fork",
        code="NF-RUN-050",
    )


def outcomes(run: Run, feed: Feed, samples: Sequence[Sample]) -> list[Outputs | Exception]:
    """Run samples together: the outputs of each, or its fault. Where the whole fails, every sample is run by
    itself, so that a faulty one harms no other."""
    found: list[Outputs | Exception] = []
    ready: list[tuple[int, Sample]] = []
    for i, sample in enumerate(samples):
        try:
            ready.append((i, feed(sample)))
            found.append({})
        except Exception as error:  # whatever it is, it is the caller's to see
            found.append(error)
    for i, made in zip((i for i, _ in ready), _run(run, [s for _, s in ready]), strict=True):
        found[i] = made
    return found


def _run(run: Run, samples: Sequence[Sample]) -> list[Outputs | Exception]:
    if not samples:
        return []
    try:
        return list(run(samples))
    except Exception as error:  # whatever it is, it is the caller's to see
        return [error] if len(samples) == 1 else [_run(run, [one])[0] for one in samples]


class Requests:
    """`workers` threads run what was submitted, up to `batch` samples together, each first as `feed` makes
    it. `linger`: seconds that an incomplete batch waits for more. `limit`: requests that may wait; 0: any
    number. In a forked process a request of the parent raises UsageError (NF-RUN-050), and threads of its own
    run what is submitted there."""

    def __init__(
        self,
        run: Run,
        feed: Feed = lambda sample: sample,
        *,
        batch: int = 8,
        workers: int = 1,
        linger: float = 0.0,
        limit: int = 0,
    ) -> None:
        self._run, self._feed, self.batch, self.linger, self.limit = run, feed, batch, linger, limit
        self.workers = workers
        self.sizes: dict[int, int] = {}  # samples run together -> how often
        self._closed = False
        self._begin()
        renewed_in_children(self)

    def _begin(self) -> None:
        """Nothing waits, and no thread runs yet."""
        self._waiting: deque[QueuedSample] = deque()
        self._unsettled: set[Answer] = set()  # waiting, or being run
        self._there = threading.Condition()
        self._deadlines = Deadlines()
        self._threads: list[threading.Thread] = []

    def forked(self) -> None:
        """Forget the parent's threads, and tell who asks for the parent's requests that none comes."""
        left = self._unsettled
        self._begin()
        for future in left:
            future.forked()

    def submit(self, sample: Sample, timeout: float | None = None) -> Future[Outputs]:
        """The outputs to come; after `timeout` seconds the future raises TimeoutError, and the sample is not
        run if it was still waiting."""
        request = QueuedSample(sample)
        with self._there:
            if self._closed:
                raise closed_runner()
            if self.limit and len(self._waiting) >= self.limit:
                raise UsageError(f"{self.limit} requests wait already", code="NF-RUN-008")
            self._start()
            self._unsettled.add(request.future)
            self._waiting.append(request)
            self._there.notify()
        if timeout is not None:
            self._deadlines.add(request.future, timeout)
        return request.future

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def close(self, finish: bool = True) -> None:
        """Take no more requests. `finish`: those that wait are run first, else they are cancelled."""
        with self._there:
            self._closed = True
            left = [] if finish else list(self._waiting)
            if not finish:
                self._waiting.clear()
            self._there.notify_all()
        for request in left:
            request.future.cancel()
            self._unsettled.discard(request.future)
        for thread in self._threads:
            if thread is not threading.current_thread():  # a future's callback may close its runner
                thread.join()
        self._deadlines.close()

    def _start(self) -> None:
        """Start the threads with the first request: a forked process has none of its parent's."""
        if not self._threads:
            self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self.workers)]
            for thread in self._threads:
                thread.start()

    def _work(self) -> None:
        while requests := self._next():
            wanted = [r for r in requests if not r.future.done() and r.future.set_running_or_notify_cancel()]
            found = outcomes(self._run, self._feed, [r.sample for r in wanted])
            if wanted:
                self.sizes[len(wanted)] = self.sizes.get(len(wanted), 0) + 1
            for request, made in zip(wanted, found, strict=True):
                _settle(request.future, made)
            self._unsettled.difference_update(request.future for request in requests)

    def _next(self) -> list[QueuedSample]:
        """The next batch; nothing when the queue is closed and empty."""
        with self._there:
            while True:
                while not self._waiting:
                    if self._closed:
                        return []
                    self._there.wait()
                end = self._waiting[0].since + self.linger
                while 0 < len(self._waiting) < self.batch and not self._closed:
                    left = end - time.monotonic()
                    if left <= 0:
                        break
                    self._there.wait(left)
                if self._waiting:
                    return [self._waiting.popleft() for _ in range(min(self.batch, len(self._waiting)))]


def _settle(future: Future[Outputs], found: Outputs | BaseException) -> None:
    """Give a future its result, unless its deadline came first."""
    try:
        if isinstance(found, BaseException):
            future.set_exception(found)
        else:
            future.set_result(found)
    except (InvalidStateError, SystemExit):  # a caller's callback that exits ends no thread of others
        return


class Deadlines:
    """Futures that raise TimeoutError at a given time if nothing has come of them; one thread, started with
    the first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Future[Outputs], float]] = []
        self._count = itertools.count()
        self._there = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, future: Future[Outputs], seconds: float) -> None:
        with self._there:
            heapq.heappush(self._heap, (time.monotonic() + seconds, next(self._count), future, seconds))
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, daemon=True)
                self._thread.start()
            self._there.notify()

    def close(self) -> None:
        with self._there:
            self._closed = True
            self._there.notify()

    def _watch(self) -> None:
        while True:
            with self._there:
                while self._heap and self._heap[0][2].done():
                    heapq.heappop(self._heap)
                if self._closed:
                    return
                left = self._heap[0][0] - time.monotonic() if self._heap else None
                if left is None or left > 0:
                    self._there.wait(left)
                    continue
                _, _, future, seconds = heapq.heappop(self._heap)
            _settle(future, TimeoutError(f"no result within {seconds:g} s"))
