"""A model as the server has it: its runner, whether samples stack, and what was counted.

Samples of different requests are computed together: they wait on the event loop, a thread computes a batch.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from npuflow.apps.serve.metrics import Counts, Shown
from npuflow.apps.serve.protocol import Request
from npuflow.apps.serve.tensors import ProtocolError
from npuflow.apps.serve.text.sessions import TextSessions
from npuflow.base.errors import UsageError
from npuflow.runner.ports import Array, joined, rows
from npuflow.runner.requests import Outputs, closed_runner
from npuflow.runner.runner import Runner

SHARE, MOST = 0.5, 2e-3  # of a batch's time, and seconds, to wait for clients that were answered


@dataclass(frozen=True)
class Waiting:
    """One sample, and the future that its request waits for."""

    sample: Mapping[str, Array]
    future: asyncio.Future[Outputs]
    since: float


@dataclass
class Times:
    """How long samples waited, and how long batches were computed."""

    started: int = 0  # samples that no longer wait
    waited: float = 0.0  # their seconds
    computed: dict[int, tuple[int, float]] = field(default_factory=dict)  # size -> batches, seconds

    def add(self, waits: Sequence[float], seconds: float) -> None:
        count, before = self.computed.get(len(waits), (0, 0.0))
        self.computed[len(waits)] = count + 1, before + seconds
        self.started, self.waited = self.started + len(waits), self.waited + sum(waits)


@dataclass
class Batches:
    """The queue of one model. All methods run on the event loop; while a batch is computed, the next gathers.

    Size of a batch, threads, seconds that an incomplete batch waits, and samples that may wait are those that
    the runner was opened with.
    """

    runner: Runner
    sizes: Counter[int] = field(default_factory=Counter)
    times: Times = field(default_factory=Times)
    _waiting: deque[Waiting] = field(default_factory=deque)
    _busy: int = 0
    _closed: bool = False
    _expected: int = 0  # samples of the last batch
    _back: float = 0.0  # when their clients no longer count as on their way
    _timer: asyncio.TimerHandle | None = None
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.runner.workers, "npuflow-batch")

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, sample: Mapping[str, Array], timeout: float) -> asyncio.Future[Outputs]:
        """The outputs to come; after `timeout` seconds a TimeoutError, and what waited is not computed."""
        if self._closed:
            raise closed_runner()
        if self.runner.limit and len(self._waiting) >= self.runner.limit:
            raise UsageError(f"{self.runner.limit} requests wait already", code="NF-RUN-008")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outputs] = loop.create_future()
        late = loop.call_later(timeout, _late, future, timeout)
        future.add_done_callback(lambda _: late.cancel())
        self._waiting.append(Waiting(sample, future, time.monotonic()))
        if len(self._waiting) in (1, self._expected, self.runner.batch):
            loop.call_soon(self._start)  # what arrives in the same turn of the loop comes along
        return future

    async def close(self) -> None:
        """Take no more; compute what waits."""
        self._closed = True
        self._start()
        while self._waiting or self._busy:
            self._quiet.clear()
            await self._quiet.wait()
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)

    def _start(self) -> None:
        """Give idle threads what waits."""
        while self._waiting and self._busy < self.runner.workers:
            left = self._pause()
            if left > 0 and not self._closed:
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(left, self._elapsed)
                return
            part = [self._waiting.popleft() for _ in range(min(self.runner.batch, len(self._waiting)))]
            part = [one for one in part if not one.future.done()]
            if part:
                self._busy += 1
                begun = time.monotonic()
                samples = [one.sample for one in part]
                made = asyncio.get_running_loop().run_in_executor(self._pool, self.runner.outcomes, samples)
                made.add_done_callback(partial(self._finished, part, begun))
        if not self._waiting and not self._busy:
            self._quiet.set()

    def _elapsed(self) -> None:
        self._timer = None
        self._start()

    def _pause(self) -> float:
        """Seconds to wait for more samples: as the runner was told, and for clients that were just answered
        together, whose next requests are on their way."""
        now, there = time.monotonic(), len(self._waiting)
        told = self._waiting[0].since + self.runner.linger - now if there < self.runner.batch else 0.0
        back = self._back - now if there < min(self._expected, self.runner.batch) else 0.0
        return max(told, back)

    def _finished(
        self, part: list[Waiting], begun: float, made: asyncio.Future[list[Outputs | Exception]]
    ) -> None:
        now = time.monotonic()
        self._busy, self._expected = self._busy - 1, len(part)
        self._back = now + min((now - begun) * SHARE, MOST) if len(part) > 1 else 0.0
        self.sizes[len(part)] += 1
        self.times.add([begun - one.since for one in part], now - begun)
        error = made.exception()
        for i, one in enumerate(part):
            if one.future.done():
                continue
            found = made.result()[i] if error is None else error
            if isinstance(found, BaseException):
                one.future.set_exception(found)
            else:
                one.future.set_result(found)
        self._start()


def _late(future: asyncio.Future[Outputs], seconds: float) -> None:
    if not future.done():
        future.set_exception(TimeoutError(f"no result within {seconds:g} s"))


@dataclass
class Served:
    """One model under its name. `most`: samples that one request may hold. `file`: what it was
    opened from. `text`: sessions of a language model that makes text."""

    name: str
    runner: Runner
    most: int = 64
    timeout: float = 30.0
    file: Path | None = None
    text: TextSessions | None = None
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self._seen = self._state()

    def _state(self) -> tuple[int, int] | None:
        """Size and time of the file; nothing without one."""
        try:
            held = None if self.file is None else self.file.stat()
        except OSError:
            return None
        return None if held is None else (held.st_size, held.st_mtime_ns)

    def changed(self) -> bool:
        """Whether the file is not the one that was opened."""
        return self._state() != self._seen

    @cached_property
    def batches(self) -> Batches:
        return Batches(self.runner)

    @cached_property
    def batched(self) -> bool:
        """Whether samples lie along the first axis of all inputs and outputs, a batch of one in each."""
        ports = (*self.runner.inputs, *self.runner.outputs)
        return all(port.ranked and port.shape[:1] == (1,) for port in ports)

    async def infer(self, request: Request) -> dict[str, Array]:
        """The outputs of a request; its samples go into batches with those of others."""
        timeout = min(self.timeout, request.timeout or self.timeout)
        samples: list[Mapping[str, Array]] = [request.inputs]
        if self.batched:
            held = {name for _, name in self.runner.state}     # what is not given begins with zeros
            ports = [p for p in self.runner.inputs if p.name in request.inputs or p.name not in held]
            samples = list(rows(request.inputs, ports))
            if not 1 <= len(samples) <= self.most:
                allowed = "1 sample" if self.most == 1 else f"1 to {self.most} samples"
                raise ProtocolError(f"a request holds {allowed}, not {len(samples)}")
        futures = []
        try:
            for sample in samples:
                futures.append(self.batches.submit(sample, timeout))
            found = [await futures[0]] if len(futures) == 1 else await asyncio.gather(*futures)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return joined(found) if self.batched else found[0]

    async def close(self) -> None:
        """Compute what still waits, then end all threads."""
        await self.batches.close()
        if self.text is not None:
            await self.text.close()
        await asyncio.get_running_loop().run_in_executor(None, self.runner.close)

    def samples(self, request: Request) -> int:
        """How many a request holds."""
        return len(next(iter(request.inputs.values()))) if self.batched and request.inputs else 1

    def shown(self) -> Shown:
        return Shown(self.counts, self.batches.waiting, dict(self.batches.sizes))
