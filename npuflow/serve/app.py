"""The HTTP side of the server: routes, limits, errors as JSON, and an orderly stop.

No request names a file: models are those that the server was started with, by name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

import npuflow
from npuflow.base.errors import InputError, NpuflowError
from npuflow.serve import metrics
from npuflow.serve.protocol import EXTENSIONS, decode, described, encode
from npuflow.serve.served import Served
from npuflow.serve.tensors import ProtocolError

HEADER = "Inference-Header-Content-Length"
LARGE = 1 << 18  # bytes from which a body is decoded beside the event loop
FULL = "NF-RUN-008"
ADDRESSES = "/v2, /v2/health/live, /v2/health/ready, /v2/models/NAME, its /ready and /infer (POST), /metrics"
LOG = logging.getLogger("npuflow.serve")


class Server:
    """Handlers over the models of one server."""

    def __init__(self, models: Mapping[str, Served]) -> None:
        self.models = models
        self.stopping = False

    def application(self, max_bytes: int) -> web.Application:
        app = web.Application(client_max_size=max_bytes, middlewares=[as_json])
        model = r"/v2/models/{model}"
        for path in (model, model + r"/versions/{version}"):
            app.router.add_get(path, self.model)
            app.router.add_get(path + "/ready", self.model_ready)
            app.router.add_post(path + "/infer", self.infer)
        app.router.add_get("/v2", self.server)
        app.router.add_get("/v2/health/live", self.live)
        app.router.add_get("/v2/health/ready", self.ready)
        app.router.add_get("/metrics", self.metrics)
        app.on_shutdown.append(self.stop)
        app.on_cleanup.append(self.close)
        return app

    async def server(self, request: web.Request) -> web.Response:
        about = {"name": "npuflow", "version": npuflow.__version__, "extensions": list(EXTENSIONS)}
        return web.json_response(about)

    async def live(self, request: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def ready(self, request: web.Request) -> web.Response:
        return web.json_response({"ready": not self.stopping}, status=503 if self.stopping else 200)

    async def model(self, request: web.Request) -> web.Response:
        one = self._model(request)
        runner = one.runner
        return web.json_response(described(one.name, runner.inputs, runner.outputs, one.batched))

    async def model_ready(self, request: web.Request) -> web.Response:
        self._model(request)
        return await self.ready(request)

    async def metrics(self, request: web.Request) -> web.Response:
        page = metrics.text({name: one.shown() for name, one in self.models.items()})
        return web.Response(body=page.encode(), headers={"Content-Type": metrics.TYPE})

    async def infer(self, request: web.Request) -> web.Response:
        one, start, count = self._model(request), time.monotonic(), 0
        status = 500
        try:
            body = await request.read()
            header = _header(request)
            asked = await _beside(len(body), decode, body, header, one.runner.outputs)
            count = one.samples(asked)
            found = await one.infer(asked)
            made, size = await _beside(sum(a.nbytes for a in found.values()), encode, asked, found, one.name)
            status = 200
        except asyncio.CancelledError:
            status = 499  # the client went away
            raise
        except Exception as error:
            status, _ = status_of(error)
            raise
        finally:
            one.counts.add(status, time.monotonic() - start, count if status == 200 else 0)
        if size is None:
            return web.Response(body=made, content_type="application/json")
        return web.Response(body=made, content_type="application/octet-stream", headers={HEADER: str(size)})

    async def stop(self, app: web.Application) -> None:
        self.stopping = True

    async def close(self, app: web.Application) -> None:
        """Compute what still waits, then end the runners' threads."""
        for one in self.models.values():
            await one.batches.close()
            await asyncio.get_running_loop().run_in_executor(None, one.runner.close)

    def _model(self, request: web.Request) -> Served:
        name, version = request.match_info["model"], request.match_info.get("version", "1")
        if name not in self.models or version != "1":
            raise ProtocolError(f'there is no model "{name}" of version {version}', 404)
        return self.models[name]


@web.middleware
async def as_json(request: web.Request, handler: Any) -> web.StreamResponse:
    """Every error as {"error": text}, as the protocol has it."""
    try:
        found: web.StreamResponse = await handler(request)
        return found
    except asyncio.CancelledError:
        raise
    except Exception as error:
        status, text = status_of(error)
        if status == 500:
            LOG.exception("a request failed")
        headers = {"Retry-After": "1"} if status == 503 else {}
        return web.json_response({"error": text}, status=status, headers=headers)


def status_of(error: Exception) -> tuple[int, str]:
    """The HTTP status and the message that a client gets for an error."""
    if isinstance(error, ProtocolError):
        return error.status, str(error)
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return error.status, f"the request is too large (npuflow serve --max-mb): {error.text}"
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return error.status, f"{error.method} is not for this address: {allowed}"
    if isinstance(error, web.HTTPNotFound):
        return error.status, f"there is no such address: {ADDRESSES}"
    if isinstance(error, web.HTTPException):
        return error.status, error.reason
    if isinstance(error, TimeoutError):
        return 504, str(error)
    if isinstance(error, NpuflowError) and error.code == FULL:
        return 503, error.message
    if isinstance(error, InputError):
        return 400, error.message + (f": {error.because}" if error.because else "")
    return 500, "the server failed; its log says why"


def _header(request: web.Request) -> int | None:
    text = request.headers.get(HEADER)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise ProtocolError(f"{HEADER} is not a number")
    return int(text)


async def _beside(size: int, function: Any, *arguments: Any) -> Any:
    """A function on small data here, on large data in a thread, so that other requests go on."""
    if size < LARGE:
        return function(*arguments)
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)
