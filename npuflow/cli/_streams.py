"""Standard output belongs to the command: what native libraries print on their own goes to standard error."""

from __future__ import annotations

import os
import sys


def own_output() -> None:
    """Keep the process's standard output for what the command writes: solvers print there whatever they are
    reported, and JSON lines must stay JSON lines."""
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
