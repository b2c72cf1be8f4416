"""A server from its start to its end: a port, signals, and requests that are finished before it stops."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from npuflow.apps.serve.app import Server
from npuflow.apps.serve.served import Served
from npuflow.base.errors import UsageError

QUIET = 1.0  # seconds that a connection without a request is kept open for one when the server stops
LAST = 0.5  # seconds for what was answered to reach its client
TURN = 0.02  # seconds between two looks at the connections
LOG = logging.getLogger("npuflow.serve.http")


async def serve(
    models: Mapping[str, Served],
    host: str,
    port: int,
    *,
    max_bytes: int,
    stop_seconds: float,
    started: Callable[[str], None],
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set, or a SIGINT or SIGTERM comes; `started` is given the address. Requests that
    are in progress, and those that come on open connections within a second, are answered within
    `stop_seconds`; a second signal ends them at once."""
    ended, hurried = stop or asyncio.Event(), asyncio.Event()
    server = Server(models)
    LOG.addFilter(of_the_server)
    runner = web.AppRunner(
        server.application(max_bytes),
        handle_signals=False,
        handler_cancellation=True,  # nothing is computed for clients that hung up
        access_log=None,
        shutdown_timeout=LAST,
        auto_decompress=False,
        logger=LOG,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(
                f"cannot listen on {host}:{port}",
                because=error.strerror or str(error),
                hint="--port 0 takes any free port",
                code="NF-RUN-022",
            ) from None

        def told() -> None:
            (hurried if ended.is_set() else ended).set()

        for number in (signal.SIGINT, signal.SIGTERM) if stop is None else ():
            asyncio.get_running_loop().add_signal_handler(number, told)
        bound = runner.addresses[0]
        name = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        started(f"http://{name}:{bound[1]}")
        await ended.wait()
        server.stopping = True
        await asyncio.sleep(TURN)  # connections that clients have made already are accepted
        await site.stop()
        await _answer_open(runner, server, stop_seconds, hurried)
    finally:
        await runner.cleanup()


async def _answer_open(
    runner: web.AppRunner, server: Server, seconds: float, hurried: asyncio.Event
) -> None:
    """Wait until every connection that has asked something has its answer; after `seconds` it is an error.
    What is closed before would lose a request that is on its way."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    while runner.server is not None and runner.server.connections and not hurried.is_set():
        since = loop.time() - start
        if since >= seconds or (since >= QUIET and not server.active):
            break
        await asyncio.sleep(TURN)
    server.hurry()
    await asyncio.sleep(0)


def of_the_server(record: logging.LogRecord) -> bool:
    """Whether a fault is the server's own: clients that hang up, or do not speak HTTP, are no news."""
    error = record.exc_info[1] if record.exc_info else None
    while error is not None:
        if isinstance(error, ConnectionError | HttpProcessingError | web.RequestPayloadError):
            return False
        error = error.__cause__
    return True
