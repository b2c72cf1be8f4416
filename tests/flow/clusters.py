"""Dask clusters for tests: schedulers and workers that are processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@contextmanager
def lone_worker() -> Iterator[tuple[str, Any]]:
    """The address of a scheduler with a worker without a nanny, and the process of the scheduler."""
    tools = [sys.executable, "-m"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])])}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": env}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scheduler.json"
        run = [
            *tools,
            "distributed.cli.dask_scheduler",
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            str(file),
        ]
        scheduler = subprocess.Popen(run, **quiet)  # type: ignore[call-overload]
        work = [
            *tools,
            "distributed.cli.dask_worker",
            "--scheduler-file",
            str(file),
            "--nthreads",
            "1",
            "--no-nanny",
        ]
        worker = subprocess.Popen([*work, "--no-dashboard"], **quiet)  # type: ignore[call-overload]
        try:
            deadline = time.monotonic() + 60
            while not file.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            address = json.loads(file.read_text())["address"]
            with distributed_client(address) as client:
                client.wait_for_workers(1, timeout=60)
            yield address, scheduler
        finally:
            for process in (worker, scheduler):
                process.kill()
                process.wait()


def distributed_client(address: str) -> Any:
    from distributed import Client

    return Client(address, set_as_default=False)
