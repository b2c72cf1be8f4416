"""Starts the dask clusters of a build's own: threads in its process, or processes beside it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from npuflow.flow.executor_deaths import Deaths, none_left
from npuflow.flow.interrupt import blocked

ANY_PORT = "127.0.0.1:0"
"""Where a scheduler answers over HTTP, also without a dashboard: its usual port may be taken."""


def threads(jobs: int, *, dashboard: bool) -> Any:
    """One worker in this process, with so many threads."""
    import distributed

    local: Any = distributed.LocalCluster
    with _settings(dashboard):
        return local(
            processes=False,
            n_workers=1,
            threads_per_worker=jobs,
            dashboard_address=ANY_PORT,
            memory_limit=0,
            silence_logs=50,
            scheduler_kwargs={"dashboard": dashboard},
        )


def processes(jobs: int, share: int, deaths: Deaths, *, dashboard: bool) -> Any:
    """So many processes of one thread each. One that takes more memory than its share is ended before it
    takes the machine down."""
    import dask
    import distributed

    local: Any = distributed.LocalCluster
    # how long a worker may take to start anew: on a busy machine the default of 15 seconds is too short
    dask.config.set({"distributed.deploy.lost-worker-timeout": "60s"})
    with blocked(), _settings(dashboard):
        made = local(
            processes=True,
            n_workers=jobs,
            threads_per_worker=1,
            dashboard_address=ANY_PORT,
            memory_limit=share,
            silence_logs=50,
            env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            worker_class=deaths.nanny(),
            # a death is reported, with all that it may be due to
            scheduler_kwargs={"allowed_failures": 0, "dashboard": dashboard},
        )
    try:
        made.wait_for_workers(jobs, timeout=60)
    except TimeoutError:
        made.close(timeout=10)
        raise none_left(deaths.started(), own=True) from None
    return made


def check_address(place: str) -> None:
    """A ValueError for an address that no scheduler can have: a client made with it would hang as it ends."""
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import backends

    scheme, rest = parse_address(place, strict=True)
    if scheme not in backends:
        raise ValueError(f'"{scheme}" is no way to reach one; tcp and tls are')
    if scheme in ("tcp", "tls"):
        parse_host_port(rest)


def quiet() -> Callable[[], None]:
    """Let dask log no more in this process, since what it says of a lost connection is an error of the
    build already; returns what lets it log again."""
    loggers = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict)]
    levels = [
        (handler, handler.level)
        for logger in loggers
        if logger.name.partition(".")[0] == "distributed"
        for handler in logger.handlers
    ]
    for handler, _ in levels:
        handler.setLevel(logging.CRITICAL)

    def loud() -> None:
        for handler, level in levels:
            handler.setLevel(level)

    return loud


def shows() -> bool:
    """Whether a cluster that is started here can have a dashboard."""
    return find_spec("bokeh") is not None


def link(client: Any, *, own: bool) -> str | None:
    """Where the dashboard of a cluster is, if it has one: dask gives an address also without bokeh."""
    if own:
        port = client.scheduler_info(n_workers=0)["services"].get("dashboard")
        return f"http://127.0.0.1:{port}/status" if port and shows() else None
    try:
        client.run_on_scheduler(version, "bokeh")
    except Exception:  # not installed there, or the scheduler runs nothing for its clients
        return None
    return client.dashboard_link or None


@contextmanager
def _settings(dashboard: bool) -> Iterator[None]:
    """What a cluster of a build's own needs of dask: no profiles, pages only for the dashboard, and no pause
    of a worker that is near its limit, which would wait for ever for memory that its process keeps."""
    import dask

    few: dict[str, Any] = (
        {} if dashboard else {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
    )
    own = {"distributed.worker.profile.enabled": False, "distributed.worker.memory.pause": False}
    with dask.config.set({**own, **few}):
        yield
