"""Sends tasks to a dask cluster, and fetches what ended ones gave; a result may die with its worker."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from typing import Any, NamedTuple

from npuflow.flow.executor_workers import LOOK
from npuflow.flow.run_step import Outcome, Task, execute

MOST = 64  # results that are fetched together
UNTIL: dict[str, threading.Event] = {}


# --- what is sent


def run(task: Task) -> Outcome:
    """Run a task on a worker of a cluster."""
    outcome = execute(task)
    if outcome.unfit:
        import distributed

        outcome.address = distributed.get_worker().address
    return outcome


class _Call(NamedTuple):
    """A task that runs where it is unpickled, and becomes its outcome."""

    task: Task

    def __reduce__(self) -> Any:
        return run, (self.task,)


def sealed(task: Task) -> bytes:
    """A task for `pickle.loads`. A scheduler unpickles what it hands out: it would need npuflow and every
    plug-in, and their sources of this moment, which only workers have shown to have."""
    from distributed.protocol import pickle as packing

    dumps: Callable[[Any], bytes] = packing.dumps
    return dumps(_Call(task))


def occupy(name: str) -> None:
    """Take up the thread that runs this until an event of this process is set."""
    UNTIL.pop(name).wait()


# --- what comes back


class Results:
    """Fetches results, as many at once as there are: a message for each would cost more than a short step.

    A result that died with its worker is made again by dask, which may take as long as a step, or for ever
    where no worker may do it. It is left out until it is there, so that it holds up no other; `other` gets
    a future that was cancelled or failed instead.
    """

    def __init__(
        self, client: Any, fetched: Callable[[Any, Outcome], None], other: Callable[[Any], None]
    ) -> None:
        self._client, self._fetched, self._other = client, fetched, other
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._late: list[Any] = []
        """Futures whose results have not come."""
        self._closed = threading.Event()
        client.loop.asyncio_loop.set_exception_handler(report_unretrieved)

    def put(self, future: Any) -> None:
        """Fetch what a future gave that has ended."""
        self._ended.put(future)

    def close(self) -> None:
        """Fetch nothing more."""
        self._closed.set()
        self._ended.put(None)

    def run(self) -> None:
        """Fetch results until this is closed."""
        while not self._closed.is_set():
            there = []
            for future in self._next():
                status = future.status
                if status == "finished":
                    there.append(future)
                elif status in ("cancelled", "error"):
                    self._other(future)
                else:
                    self._late.append(future)
            if there:
                self._fetch(there)

    def _next(self) -> list[Any]:
        """Futures that have ended, and those that were late: one at least, or after a pause."""
        some = list[Any]()
        try:
            some.append(self._ended.get(timeout=LOOK if self._late else None))
            while len(some) < MOST:
                some.append(self._ended.get_nowait())
        except queue.Empty:
            pass
        some += self._late
        self._late = []
        return [future for future in some if future is not None]

    def _fetch(self, some: Sequence[Any]) -> None:
        try:
            found = self._asked(some)
        except OSError:  # the connection: either it comes back, or the watch gives up
            found = None
        except Exception as fault:
            if len(some) > 1:  # one of them was lost: each is asked for by itself
                for future in some:
                    self._fetch([future])
                return
            found = [Outcome(error=fault)] if some[0].status == "finished" else None
        if found is None:
            self._late += some
            return
        for future, outcome in zip(some, found, strict=True):
            self._fetched(future, outcome)

    def _asked(self, some: Sequence[Any]) -> list[Outcome] | None:
        """What futures gave; None when one of them has nothing to give any more."""
        asked = self._client.gather(list(some), asynchronous=True)
        coming = asyncio.run_coroutine_threadsafe(asked, self._client.loop.asyncio_loop)
        while not wait([coming], LOOK).done:
            if self._closed.is_set() or any(future.status != "finished" for future in some):
                coming.cancel()
                return None
        return coming.result()


def report_unretrieved(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The loop's handler of exceptions that no caller retrieves. A cancelled gather leaves tasks that end
    with dask's own AllExit when a worker dies, and sends wait for more with a timeout, which a loop on a busy
    machine may see pass as it stops. Neither is an error."""
    from distributed.client import AllExit

    fault = context.get("exception")
    late = isinstance(fault, TimeoutError) and not loop.is_running()
    if not (isinstance(fault, AllExit) or late):
        loop.default_exception_handler(context)
