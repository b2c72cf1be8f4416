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

# beginnings of lines that HiGHS always prints: the name of a class of its own and of a function
SOLVER = rb"H(?:ighs\w*|Ekk\w*|Presolve\w*|Factor\w*|SimplexNla\w*)::"
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def without_prints() -> Iterator[None]:
    """While the body runs, nothing that C's printf writes to standard output reaches it. What Python writes,
    in any thread, and what processes started meanwhile write is not touched: the file descriptor stays.

    With glibc, whose `stdout` is a variable; elsewhere lines of the solver are dropped by their beginning.
    """
    if not _glibc():
        with without_lines(SOLVER):
            yield
        return
    _DISCARD.enter()
    try:
        yield
    finally:
        _DISCARD.leave()


class _Discard:
    """Lets C's `stdout` be a stream into nothing as long as anyone is inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._kept: int | None = None
        self._nothing: int | None = None

    def enter(self) -> None:
        with self._lock:
            if not self._inside:
                library = ctypes.CDLL(None)
                library.fopen.restype = ctypes.c_void_p
                self._nothing = self._nothing or library.fopen(os.devnull.encode(), b"w")
                stream = ctypes.c_void_p.in_dll(library, "stdout")
                self._kept, stream.value = stream.value, self._nothing or stream.value
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdout").value = self._kept


_DISCARD = _Discard()


def _glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (AttributeError, OSError, ValueError):  # another system, or another library
        return False


@contextmanager
def without_lines(mark: bytes) -> Iterator[None]:
    """While the body runs, what is written to descriptor 1 from `mark`, a pattern, on to the end of its line
    is dropped. All else is written to it when the body ends, also that of other threads: a descriptor belongs
    to the whole process.

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
                left = re.sub(mark + rb"[^\n]*\n?", b"", caught.read())
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
