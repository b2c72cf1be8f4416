"""The HTTP side of the server: routes, limits, errors as JSON, and an orderly stop.

No request names a file: models are those that the server was started with, by name.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Mapping
from typing import Any

from aiohttp import web

import npuflow
from npuflow.apps.serve import endpoints, metrics, repository
from npuflow.apps.serve.protocol import EXTENSIONS, VERSION, Request, decode, described, encode, json_object
from npuflow.apps.serve.served import Served
from npuflow.apps.serve.tensors import GONE, ProtocolError, parameters
from npuflow.apps.serve.text.answers import failure
from npuflow.apps.serve.text.fields import CompletionError
from npuflow.base.errors import InputError, NpuflowError

ENCODINGS = ("gzip", "deflate")
_GZIP = 16 + zlib.MAX_WBITS
_FORMS = {"gzip": (_GZIP,), "x-gzip": (_GZIP,), "deflate": (zlib.MAX_WBITS, -zlib.MAX_WBITS)}


class EncodingError(ProtocolError):
    """A Content-Encoding that the server does not read."""

    def __init__(self, name: str) -> None:
        known = ", ".join(ENCODINGS)
        super().__init__(f'the Content-Encoding "{name}" is not read; it reads {known} and identity', 415)


def encodings_of(header: str) -> tuple[str, ...]:
    """The encodings that a header states, the one to undo first in front; EncodingError for others."""
    names = [name.strip().lower() for name in header.split(",")]
    found = [name for name in reversed(names) if name not in ("", "identity")]
    for name in found:
        if name not in _FORMS:
            raise EncodingError(name)
    return tuple(found)


def plain(body: bytes, encodings: tuple[str, ...], most: int) -> bytes:
    """The body with its encodings undone. ProtocolError where it is not what they say (400), or would have
    more than `most` bytes (413)."""
    for name in encodings:
        body = _undone(body, name, most)
    return body


def _undone(body: bytes, name: str, most: int) -> bytes:
    for form in _FORMS[name]:
        try:
            return _inflated(body, form, most)
        except zlib.error:
            continue
    raise ProtocolError(f"the body is no complete {name}, which its Content-Encoding states")


def _inflated(body: bytes, form: int, most: int) -> bytes:
    """All members, one behind the other; zlib.error where one is damaged, cut off, or followed by others'
    bytes."""
    parts, left = [], most
    while True:
        member = zlib.decompressobj(form)
        parts.append(member.decompress(body, left + 1))
        left -= len(parts[-1])
        if left < 0:
            raise ProtocolError(
                f"the request is too large (npuflow serve --max-mb): more than {most} bytes when decoded", 413
            )
        if not member.eof:
            raise zlib.error("cut off")
        body = member.unused_data
        if not body:
            return b"".join(parts)
        if form != _GZIP:
            raise zlib.error("bytes behind the end")


HEADER = "Inference-Header-Content-Length"
LARGE = 1 << 18  # bytes from which a body is decoded beside the event loop
FULL = ("NF-RUN-008", "NF-RUN-097")
ADDRESSES = (
    "/v2, /v2/health/live, /v2/health/ready, /v2/models/NAME, its /ready, /config, /stats and /infer (POST), "
    f"/v2/models/stats, /v2/repository/index (POST), {endpoints.ADDRESSES}, /metrics"
)
STOPS = "the server stops; it did not finish this request"
LOG = logging.getLogger("npuflow.serve")


class Server:
    """Handlers over the models of one server."""

    def __init__(self, models: Mapping[str, Served]) -> None:
        self.models = models
        self.stopping = self.hurried = False
        self.most = 0  # bytes of a body
        self.active: set[asyncio.Task[Any]] = set()  # requests that are being answered
        self.text = endpoints.TextEndpoints(models, self._body, self.ended)

    def application(self, max_bytes: int) -> web.Application:
        self.most = max_bytes
        app = web.Application(client_max_size=max_bytes, middlewares=[self.answered])
        app.router.add_get("/v2/models/stats", self.all_statistics)
        model = r"/v2/models/{model}"
        for path in (model, model + r"/versions/{version}"):
            app.router.add_get(path, self.model)
            app.router.add_get(path + "/ready", self.model_ready)
            app.router.add_get(path + "/config", self.configuration)
            app.router.add_get(path + "/stats", self.statistics)
            app.router.add_post(path + "/infer", self.infer)
        app.router.add_post("/v2/repository/index", self.index)
        app.router.add_post("/v2/repository/models/{model}/load", self.load)
        app.router.add_post("/v2/repository/models/{model}/unload", self.unload)
        self.text.add(app.router)
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
        texts = {name: one.counts for name, one in self.text.texts.items()}
        page = metrics.text({name: one.shown() for name, one in self.models.items()}, texts)
        return web.Response(body=page.encode(), headers={"Content-Type": metrics.TYPE})

    async def infer(self, request: web.Request) -> web.Response:
        one, start, count = self._model(request), time.monotonic(), 0
        status = 500
        try:
            asked = await self._asked(request, one)
            count = one.samples(asked)
            found = await one.infer(asked)
            begun = time.monotonic()
            made, size = await _beside(sum(a.nbytes for a in found.values()), encode, asked, found, one.name)
            one.counts.encoding += time.monotonic() - begun
            status = 200
        except BaseException as error:
            status, _ = self.ended(error)
            raise
        finally:
            one.counts.add(status, time.monotonic() - start, count if status == 200 else 0)
        if size is None:
            return web.Response(body=made, content_type="application/json")
        return web.Response(body=made, content_type="application/octet-stream", headers={HEADER: str(size)})

    async def statistics(self, request: web.Request) -> web.Response:
        return web.json_response(repository.statistics([self._model(request)]))

    async def all_statistics(self, request: web.Request) -> web.Response:
        return web.json_response(repository.statistics([*self.models.values()]))

    async def configuration(self, request: web.Request) -> web.Response:
        return web.json_response(repository.configuration(self._model(request)))

    async def index(self, request: web.Request) -> web.Response:
        wanted = (await _table(request)).get("ready", False)
        if not isinstance(wanted, bool):
            raise ProtocolError("ready is not true or false")
        if wanted and self.stopping:
            return web.json_response([])
        return web.json_response(repository.index([*self.models.values()], not self.stopping))

    async def load(self, request: web.Request) -> web.Response:
        one = self._model(request)
        if parameters(await _table(request), "the request"):
            raise ProtocolError("a model is served as the command line says: load takes no parameters")
        repository.load(one)
        return web.json_response({})

    async def unload(self, request: web.Request) -> web.Response:
        repository.unload(self._model(request))
        return web.json_response({})

    async def stop(self, app: web.Application) -> None:
        self.stopping = True

    async def close(self, app: web.Application) -> None:
        """Compute what still waits, then end the runners' threads."""
        for one in self.models.values():
            await one.close()

    @web.middleware
    async def answered(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Every error as {"error": text}, as the protocol has it, or as OpenAI's has it. Once the server
        stops, an answer is the last one of its connection; `hurry` ends requests with status 503."""
        task = asyncio.current_task()
        assert task is not None
        self.active.add(task)
        try:
            found: web.StreamResponse = await handler(request)
        except asyncio.CancelledError:
            if task not in self.active:
                task.uncancel()
                return _closing(web.json_response(_said(request, 503, STOPS), status=503))
            raise
        except Exception as error:
            found = _error(request, error)
        finally:
            self.active.discard(task)
        return _closing(found) if self.stopping else found

    def hurry(self) -> None:
        """Answer what is still in progress now: with status 503, or an event with the error."""
        self.hurried = True
        while self.active:
            self.active.pop().cancel()

    def ended(self, error: BaseException) -> tuple[int, str]:
        """The status that a request counts with, and the message, by what ended it."""
        if isinstance(error, asyncio.CancelledError):
            return (503, STOPS) if self.hurried else (GONE, "the client went away")
        return status_of(error)

    async def _body(self, request: web.Request) -> bytes:
        """A request's body, with its encodings undone."""
        encodings = encodings_of(request.headers.get("Content-Encoding", ""))
        body = await request.read()
        found: bytes = await _beside(LARGE if encodings else 0, plain, body, encodings, self.most)
        return found

    async def _asked(self, request: web.Request, one: Served) -> Request:
        """What a request asks for, read and decoded."""
        encodings = encodings_of(request.headers.get("Content-Encoding", ""))
        body, header = await request.read(), _header(request)
        begun = time.monotonic()

        def decoded() -> Request:
            return decode(plain(body, encodings, self.most), header, one.runner.outputs)

        found: Request = await _beside(LARGE if encodings else len(body), decoded)
        one.counts.decoded += 1
        one.counts.decoding += time.monotonic() - begun
        return found

    def _model(self, request: web.Request) -> Served:
        name, version = request.match_info["model"], request.match_info.get("version", VERSION)
        if name not in self.models or version != VERSION:
            raise ProtocolError(f'there is no model "{name}" of version {version}', 404)
        return self.models[name]


def _said(request: web.Request, status: int, text: str, error: Exception | None = None) -> dict[str, Any]:
    """An error as the protocol of the request's address has it."""
    return failure(status, text, error) if request.path.startswith(endpoints.PATH) else {"error": text}


def _error(request: web.Request, error: Exception) -> web.Response:
    """The answer to a request that failed; what is the server's own fault is logged."""
    status, text = status_of(error)
    if status == 500:
        LOG.error("a request failed", exc_info=error)
    headers = {"Retry-After": "1"} if status == 503 else {}
    if status == 415:
        headers["Accept-Encoding"] = ", ".join(ENCODINGS)
    return web.json_response(_said(request, status, text, error), status=status, headers=headers)


def _closing(answer: web.StreamResponse) -> web.StreamResponse:
    """The same answer, after which its connection is closed."""
    answer.force_close()
    return answer


def status_of(error: BaseException) -> tuple[int, str]:
    """The HTTP status and the message that a client gets for an error."""
    if isinstance(error, ProtocolError | CompletionError):
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
    if isinstance(error, ConnectionError):
        return GONE, "the client went away"
    if isinstance(error, web.RequestPayloadError):
        return 400, "the request's body is damaged, or ends before its length"
    if isinstance(error, TimeoutError):
        return 504, str(error)
    if isinstance(error, NpuflowError) and error.code in FULL:
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


async def _table(request: web.Request) -> dict[str, Any]:
    """The JSON object of a small request; none where the body is empty."""
    body = plain(
        await request.read(), encodings_of(request.headers.get("Content-Encoding", "")), LARGE
    )
    return json_object(body) if body.strip() else {}


async def _beside(size: int, function: Any, *arguments: Any) -> Any:
    """A function on small data here, on large data in a thread, so that other requests go on."""
    if size < LARGE:
        return function(*arguments)
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)
