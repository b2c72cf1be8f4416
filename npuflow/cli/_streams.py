"""Standard output belongs to the command; native libraries print to standard error, and dask only errors."""

from __future__ import annotations

import os
import sys


def own_output() -> None:
    """Keep the process's standard output for what the command writes: solvers print there whatever they are
    reported, and JSON lines must stay JSON lines. Of dask's log, errors alone are shown: what it says of the
    connections that a build closes comes after the build."""
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "error")
    try:
        direct = sys.stdout.fileno() == 1
    except (AttributeError, OSError, ValueError):  # replaced, as under a test, or closed
        return
    if not direct:
        return
    old = sys.stdout
    old.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(
        kept, "w", encoding=old.encoding, errors=old.errors, buffering=1 if old.line_buffering else -1
    )
