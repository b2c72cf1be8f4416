"""The page's server: three files, the builds as JSON, their reports, and events as they happen.

It listens on this machine alone and answers only requests that name it so: a page of another site cannot read
the cache through the browser. Nothing in a request names a file.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from typing import Any

from aiohttp import web

from npuflow.apps.view import builds, network
from npuflow.apps.view.address import announced
from npuflow.apps.view.builds import stage_of
from npuflow.base.digest import ALGORITHM
from npuflow.base.errors import UsageError
from npuflow.flow.store import Store
from npuflow.flow.store_lease import live, now


class BuildWatch:
    """Looks at the times of all records; each `look` reports what is new since the last one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._stages: dict[str, str] = {}  # key -> its stage
        self._records = self._times("records")
        self._roots = self._times("roots")
        self._running = -1

    def look(self) -> dict[str, Any]:
        """Nothing where nothing is new; else how many builds are "running", by stage what "ran" and what was
        a "hit", and whether there are new "builds"."""
        found: dict[str, Any] = {}
        records, roots = self._times("records"), self._times("roots")
        stages: dict[str, Counter[str]] = {}
        for key, time in records.items():
            before = self._records.get(key)
            if before != time:
                stage = self._stage(key)
                if stage:
                    stages.setdefault(stage, Counter())["ran" if before is None else "hit"] += 1
        if stages:
            found["stages"] = stages
        if roots != self._roots:
            found["builds"] = True
        running = len(live(self.store.root, now(self.store.root)))
        if running != self._running or found:
            found["running"] = running
        self._records, self._roots, self._running = records, roots, running
        return found

    def _stage(self, key: str) -> str:
        if key not in self._stages:
            record = self.store.record(key, touch=False, remote=False)
            if record is None:
                return ""
            self._stages[key] = stage_of(record.stage)
        return self._stages[key]

    def _times(self, folder: str) -> dict[str, int]:
        """Name or key -> when a file of the folder, or of its folders, was last changed or touched."""
        found: dict[str, int] = {}
        with suppress(OSError), os.scandir(self.store.root / folder) as outer:
            for entry in outer:
                if entry.is_dir():
                    with suppress(OSError), os.scandir(entry.path) as inner:
                        for one in inner:
                            key = f"{ALGORITHM}:{entry.name}{one.name.removesuffix('.json')}"
                            found[key] = one.stat().st_mtime_ns
                else:
                    found[entry.name] = entry.stat().st_mtime_ns
        return found


FILES = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/loops.js": ("loops.js", "text/javascript"),
    "/network.js": ("network.js", "text/javascript"),
    "/compare.js": ("compare.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
# the plotting library compiles its expressions
SCRIPTS = "script-src 'self' 'unsafe-eval'"
POLICY = f"default-src 'self'; {SCRIPTS}; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
NO_REPORT = "this build has no report: it failed, stopped early (--until), or the cache has lost it"
NO_TENSOR = "this build's report has no such tensor"
PERIOD = 0.25  # seconds between two looks while a page is open
HOSTS = ("127.0.0.1", "localhost", "[::1]")


class ViewServer:
    """Handlers over one cache."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.comparison = network.BuildFigures(store)
        self._stopping = asyncio.Event()

    def application(self) -> web.Application:
        app = web.Application(middlewares=[of_this_machine])
        for path in FILES:
            app.router.add_get(path, self.file)
        app.router.add_get("/api/builds", self.builds)
        app.router.add_get("/api/builds/{build}", self.build)
        app.router.add_get("/api/builds/{build}/log/{stage}", self.log)
        app.router.add_get("/api/builds/{build}/network", self.network)
        app.router.add_get("/api/builds/{build}/tensor", self.tensor)
        app.router.add_get("/api/compare", self.compare)
        app.router.add_get("/builds/{build}/plots.js", self.plot_script)
        app.router.add_get("/builds/{build}/report", self.report)
        app.router.add_get("/events", self.events)
        app.on_shutdown.append(self.stop)
        return app

    async def stop(self, app: web.Application) -> None:
        self._stopping.set()

    async def file(self, request: web.Request) -> web.Response:
        name, kind = FILES[request.path]
        text = files("npuflow.apps.view").joinpath(name).read_text("utf-8")
        return web.Response(text=text, content_type=kind, headers={"Content-Security-Policy": POLICY})

    async def builds(self, request: web.Request) -> web.Response:
        return web.json_response(await _beside(builds.builds, self.store))

    async def build(self, request: web.Request) -> web.Response:
        return web.json_response(_there(await _beside(builds.build, self.store, request.match_info["build"])))

    async def log(self, request: web.Request) -> web.Response:
        found = await _beside(
            builds.log, self.store, request.match_info["build"], request.match_info["stage"]
        )
        return web.Response(text=_there(found))

    async def network(self, request: web.Request) -> web.Response:
        return web.json_response(
            _there(await _beside(network.network, self.store, request.match_info["build"]), NO_REPORT)
        )

    async def tensor(self, request: web.Request) -> web.Response:
        wanted = request.match_info["build"], request.query.get("name", "")
        return web.json_response(_there(await _beside(network.tensor, self.store, *wanted), NO_TENSOR))

    async def compare(self, request: web.Request) -> web.Response:
        return web.json_response(await _beside(self.comparison.rows))

    async def plot_script(self, request: web.Request) -> web.Response:
        found = _there(await _beside(network.plot_script, self.store, request.match_info["build"]))
        return web.Response(text=found, content_type="text/javascript")

    async def report(self, request: web.Request) -> web.Response:
        found = await _beside(builds.report, self.store, request.match_info["build"])
        return web.Response(text=_there(found), content_type="text/html")

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events of what changes, a quarter of a second later at most."""
        answer = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await answer.prepare(request)
        watch = await _beside(BuildWatch, self.store)
        quiet = 0
        while not self._stopping.is_set():
            found = await _beside(watch.look)
            quiet = 0 if found else quiet + 1
            try:
                if found:
                    await answer.write(f"data: {json.dumps(found)}\n\n".encode())
                elif quiet % 40 == 0:
                    await answer.write(b": nothing\n\n")
            except ConnectionError:
                break
            try:
                await asyncio.wait_for(self._stopping.wait(), PERIOD)
            except TimeoutError:
                continue
        return answer


@web.middleware
async def of_this_machine(request: web.Request, handler: Any) -> web.StreamResponse:
    """Refuses requests under another name than this machine's own."""
    name = request.host.rpartition(":")[0] if not request.host.endswith("]") else request.host
    if (name or request.host) not in HOSTS:
        raise web.HTTPForbidden(text="the page is of this machine alone")
    found: web.StreamResponse = await handler(request)
    return found


def _there(found: Any, text: str = "the cache has no such thing") -> Any:
    if found is None:
        raise web.HTTPNotFound(text=text)
    return found


async def _beside(function: Any, *arguments: Any) -> Any:
    """Reading files in a thread, so that other requests go on."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


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
