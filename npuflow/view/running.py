"""The page's server from its start to its end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from aiohttp import web

from npuflow.base.errors import UsageError
from npuflow.flow.store import Store
from npuflow.view.address import announced
from npuflow.view.app import ViewServer


async def serve(
    store: Store, port: int, started: Callable[[str], None], stop: asyncio.Event | None = None
) -> None:
    """Serve on this machine until `stop` is set or a SIGINT or SIGTERM comes; `started` gets the address."""
    ended = stop or asyncio.Event()
    runner = web.AppRunner(
        ViewServer(store).application(), handle_signals=False, access_log=None, shutdown_timeout=2.0
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
        except OSError as error:
            raise UsageError(
                f"cannot listen on port {port}",
                because=error.strerror or str(error),
                hint="--port 0 takes any free port",
                code="NF-RUN-024",
            ) from None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM) if stop is None else ():
            loop.add_signal_handler(number, ended.set)
        address = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        with announced(store.root, address):
            started(address)
            await ended.wait()
    finally:
        await runner.cleanup()
