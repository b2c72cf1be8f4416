"""Which executor a scheduler's name stands for."""

from __future__ import annotations

from npuflow.base.errors import UsageError
from npuflow.flow.plan import Plan
from npuflow.flow.run_pool import Executor, Threads
from npuflow.flow.store import Store


def executor(scheduler: str, jobs: int, plan: Plan, store: Store) -> Executor:
    """`threads`, `processes[:N]`, or the address of a cluster."""
    if scheduler == "threads":
        return Threads(jobs)
    raise UsageError(f'there is no scheduler "{scheduler}"', hint="threads, processes[:N], or tcp://host:port")
