"""What a dask cluster is sent: tasks that run where they are unpickled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from npuflow.flow.run_step import Outcome, Task, execute


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


UNTIL: dict[str, threading.Event] = {}


def wait(name: str) -> None:
    """Take up the thread that runs this until an event of this process is set."""
    UNTIL.pop(name).wait()
