"""Keeps a note of Ctrl-C, since code that it meets may swallow the exception.

A build with nothing to do imports this, so it imports little.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class _Note:
    """Whether Ctrl-C came while `heeding` was on."""

    taken = False


def _noted(number: int, frame: FrameType | None) -> None:
    _Note.taken = True
    signal.default_int_handler(number, frame)


@contextmanager
def heeding() -> Iterator[None]:
    """Note every interrupt while the block runs. One that Python discards, since it is raised in a callback
    (of an import lock), is not reported: `check` raises it. A handler of the user's own is left in place."""
    if not _takes_over():
        yield
        return
    before: Callable[[Any], Any] = sys.unraisablehook

    def report(event: Any) -> None:
        if not issubclass(event.exc_type, KeyboardInterrupt):
            before(event)

    sys.unraisablehook = report
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = before
        _Note.taken = False  # a later build that another handler is set for must not find it


def _takes_over() -> bool:
    """Whether interrupts are noted from now on: not where a handler is set already, or in another thread."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    try:
        signal.signal(signal.SIGINT, _noted)
    except ValueError:                    # Python sets handlers in the main thread alone
        return False
    return True


def check() -> None:
    """Raise the interrupt that was noted, in case what it met swallowed it (imports
    of native libraries do)."""
    if _Note.taken:
        import threading

        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt


@contextmanager
def blocked() -> Iterator[None]:
    """Processes that are started in the block never get Ctrl-C: whoever started them ends them."""
    from multiprocessing import resource_tracker

    # it unblocks the signal when it starts, which the first process makes it do
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
