"""Keeps a note of Ctrl-C, since code that it meets may swallow the exception."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from npuflow.base.errors import BuildError

_asked = threading.Event()


class Interrupted(BuildError):
    """The user stopped the build; what was finished is kept."""


def _noted(number: int, frame: FrameType | None) -> None:
    _asked.set()
    signal.default_int_handler(number, frame)


@contextmanager
def heeding() -> Iterator[None]:
    """Note every interrupt while the block runs. One that Python discards, since it is raised in a callback
    (of an import lock), is not reported: `check` raises it. A handler of the user's own is left in place."""
    mine = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not mine:
        yield
        return
    _asked.clear()
    before: Callable[[Any], Any] = sys.unraisablehook

    def report(event: Any) -> None:
        if not issubclass(event.exc_type, KeyboardInterrupt):
            before(event)

    sys.unraisablehook = report
    signal.signal(signal.SIGINT, _noted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = before
        _asked.clear()  # a later build that another handler is set for must not find it


def check() -> None:
    """Raise the interrupt that was noted, in case what it met swallowed it (imports
    of native libraries do)."""
    if _asked.is_set() and threading.current_thread() is threading.main_thread():
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
