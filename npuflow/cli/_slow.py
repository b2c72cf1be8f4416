"""Progress of what may take longer than two seconds: one line on a terminal, few in a log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

AFTER = 2.0  # seconds without a word
EVERY = 0.2  # between two updates on a terminal
ELSEWHERE = 10.0  # between two lines in a log


class Slow:
    """`at(done)` says how far it is. Nothing is printed of what is done within two seconds."""

    def __init__(
        self,
        what: str,
        total: int | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.what, self.total, self._clock = what, total, clock
        self._stream = stream if stream is not None else sys.stderr
        self._live = self._stream.isatty()
        self._begun = self._said = clock()
        self._width = 0

    def at(self, done: int) -> None:
        now = self._clock()
        pause = EVERY if self._live else ELSEWHERE
        first = self._said == self._begun
        if now - self._begun < AFTER or (not first and now - self._said < pause):
            return
        self._said = now
        line = self.line(done, now - self._begun)
        if self._live:
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def line(self, done: int, seconds: float) -> str:
        rate = done / seconds if seconds else 0.0
        of = f"{done}/{self.total}" if self.total is not None else str(done)
        left = (self.total - done) / rate if self.total is not None and rate else 0.0
        return f"{of} {self.what}, {rate:.3g}/s" + (f", {left:.0f} s left" if left >= 1 else "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()


class Working:
    """Says what goes on, and for how long, while a block takes more than two seconds and counts nothing."""

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self.what = what
        self._stream = stream if stream is not None else sys.stderr
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        begun, live, width = time.monotonic(), self._stream.isatty(), 0
        pause = AFTER
        while not self._done.wait(pause):
            line = f"{self.what}, {time.monotonic() - begun:.0f} s"
            self._stream.write("\r" + line.ljust(width) if live else line + "\n")
            self._stream.flush()
            width, pause = len(line), 1.0 if live else ELSEWHERE
        if live and width:
            self._stream.write("\r" + " " * width + "\r")
            self._stream.flush()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
