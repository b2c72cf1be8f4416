"""What native code prints on its own to standard output, dropped; what others write meanwhile is kept."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SOLVER = b"HighsMipSolverData::"          # what HiGHS prints of its inner runs, whatever it is told
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def without_lines(mark: bytes) -> Iterator[None]:
    """While the body runs, what is written to descriptor 1 from `mark` on to the end of its line is dropped.
    All else is written to it when the body ends, also that of other threads: a descriptor belongs to the
    whole process.

    Solvers print some lines of theirs whatever they are told, through C's buffer, which is emptied on both
    sides. Where standard output is closed the body just runs.
    """
    with _ONE_AT_A_TIME:
        flush = _flush()
        try:
            flush()
            kept = os.dup(1)
        except OSError:
            yield
            return
        with tempfile.TemporaryFile() as caught:
            os.dup2(caught.fileno(), 1)
            try:
                yield
            finally:
                flush()
                os.dup2(kept, 1)
                os.close(kept)
                caught.seek(0)
                left = re.sub(re.escape(mark) + rb"[^\n]*\n?", b"", caught.read())
                while left:
                    left = left[os.write(1, left) :]


def _flush() -> Callable[[], None]:
    """Empties C's buffers and, where it writes to descriptor 1, Python's."""
    library = ctypes.CDLL(None) if os.name == "posix" else ctypes.CDLL("msvcrt")

    def flush() -> None:
        try:
            if sys.stdout is not None and sys.stdout.fileno() == 1:
                sys.stdout.flush()
        except (AttributeError, OSError, ValueError):  # replaced or closed
            pass
        library.fflush(None)

    return flush
