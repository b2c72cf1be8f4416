"""A server in a thread of the tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from npuflow.apps.serve.running import serve
from npuflow.apps.serve.served import Served


class Running:
    """The address of a running server, and how it is stopped."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.address, self.loop, self.stop = "", asyncio.new_event_loop(), asyncio.Event()

    @property
    def place(self) -> str:
        return urlsplit(self.address).netloc

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.stop.set)

    def run(self, models: dict[str, Served], limits: dict[str, Any]) -> None:
        self.loop.run_until_complete(
            serve(models, "127.0.0.1", 0, started=self.started, stop=self.stop, **limits)
        )

    def started(self, address: str) -> None:
        self.address = address
        self.there.set()


@contextmanager
def running(*models: Served, max_bytes: int = 1 << 20, stop_seconds: float = 5.0) -> Iterator[Running]:
    one = Running()
    limits = {"max_bytes": max_bytes, "stop_seconds": stop_seconds}
    thread = threading.Thread(target=one.run, args=({m.name: m for m in models}, limits))
    thread.start()
    try:
        assert one.there.wait(10)
        yield one
    finally:
        one.end()
        thread.join(20)
        assert not thread.is_alive()
