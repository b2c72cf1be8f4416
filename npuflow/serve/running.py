"""A server from its start to its end: a port, signals, and requests that are finished before it stops."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping

from aiohttp import web

from npuflow.base.errors import UsageError
from npuflow.serve.app import Server
from npuflow.serve.served import Served


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
    are in progress are answered within `stop_seconds`."""
    ended = stop or asyncio.Event()
    server = Server(models)
    runner = web.AppRunner(
        server.application(max_bytes), handle_signals=False, access_log=None, shutdown_timeout=stop_seconds
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
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM) if stop is None else ():
            loop.add_signal_handler(number, ended.set)
        bound = runner.addresses[0]
        name = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        started(f"http://{name}:{bound[1]}")
        await ended.wait()
        server.stopping = True
    finally:
        await runner.cleanup()
