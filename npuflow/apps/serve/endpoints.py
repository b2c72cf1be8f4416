"""The HTTP side of OpenAI's protocol: models, completions, conversations, whole or as server-sent events."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from aiohttp import web

from npuflow.apps.serve.protocol import json_object
from npuflow.apps.serve.served import Served
from npuflow.apps.serve.tensors import GONE
from npuflow.apps.serve.text import requests
from npuflow.apps.serve.text.answers import DONE, TextAnswer, event, failure
from npuflow.apps.serve.text.fields import CompletionError, Fields
from npuflow.apps.serve.text.sessions import TextSession, TextSessions
from npuflow.base.errors import DataError
from npuflow.runner.text import TextStream

PATH = "/v1/"
ADDRESSES = "/v1/models, /v1/models/NAME, /v1/completions (POST), /v1/chat/completions (POST)"
HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
LOG = logging.getLogger("npuflow.serve")
Read = Callable[[web.Request], Awaitable[bytes]]
Status = Callable[[BaseException], tuple[int, str]]
"""The status and the message of what ended a request: also of a cancellation, whether by the server's end or
by a client that hung up."""


class TextEndpoints:
    """Handlers over the language models of one server. `read`: a request's body, decoded."""

    def __init__(self, models: Mapping[str, Served], read: Read, status: Status) -> None:
        self.models, self._read, self._status = models, read, status
        self.since = int(time.time())

    def add(self, router: web.UrlDispatcher) -> None:
        router.add_get("/v1/models", self.index)
        router.add_get("/v1/models/{model}", self.model)
        router.add_post("/v1/completions", self.completions)
        router.add_post("/v1/chat/completions", self.chat)

    @property
    def texts(self) -> dict[str, TextSessions]:
        return {name: one.text for name, one in self.models.items() if one.text is not None}

    async def index(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [self._about(name) for name in self.texts]})

    async def model(self, request: web.Request) -> web.Response:
        name = request.match_info["model"]
        self._sessions(name)
        return web.json_response(self._about(name))

    async def completions(self, request: web.Request) -> web.StreamResponse:
        return await self._counted(request, False)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        return await self._counted(request, True)

    async def _counted(self, request: web.Request, chat: bool) -> web.StreamResponse:
        start = time.monotonic()
        fields = Fields(json_object(await self._read(request)))
        name = fields.text("model")
        sessions, status = self._sessions(name), 500
        try:
            parse = requests.conversation if chat else requests.completion
            asked = await asyncio.to_thread(parse, fields, sessions.tokenizer, sessions.limits)
            answer = TextAnswer(name, chat, asked.usage)
            with sessions.opened(_streams(sessions, asked), asked.stops) as opened:
                if not asked.stream:
                    found = await _whole(answer, opened, asked.fronts)
                    status = 200
                    return found
                stream = EventStream(request, answer, self._status)
                status = await stream.run(opened, asked.fronts)
                return stream.response
        except BaseException as error:
            status, _ = self._status(error)
            raise
        finally:
            sessions.counts.add(status, time.monotonic() - start)

    def _about(self, name: str) -> dict[str, Any]:
        context = self.texts[name].generator.context
        return {
            "id": name, "object": "model", "created": self.since, "owned_by": "npuflow",
            "max_model_len": context,
        }

    def _sessions(self, name: str) -> TextSessions:
        if name in self.texts:
            return self.texts[name]
        because = f"those that make text: {', '.join(self.texts) or 'none'}"
        if name in self.models:
            because += "; npuflow serve --model names the checkpoint with the tokenizer of a program"
        raise CompletionError(f'there is no model "{name}" ({because})', "model", 404, "model_not_found")


class EventStream:
    """One answer as server-sent events. What fails in front of the first event has a status of its own; what
    fails later is an event with the error, and no [DONE] behind it."""

    def __init__(self, request: web.Request, answer: TextAnswer, status: Status) -> None:
        self.response = web.StreamResponse(headers=HEADERS)
        self._request, self._answer, self._status = request, answer, status
        self._turn = asyncio.Lock()

    async def run(self, sessions: Sequence[TextSession], fronts: Sequence[str]) -> int:
        """Send all texts; the status that the request counts with."""
        texts = zip(sessions, fronts, strict=True)
        try:
            await _together([self._text(i, one, front) for i, (one, front) in enumerate(texts)])
            await self._send(*([self._answer.end(sessions)] if self._answer.usage else []), done=True)
            return 200
        except BaseException as error:
            if isinstance(error, ConnectionError) and self._request.transport is not None:
                self._request.transport.abort()       # nothing more is sent to who does not read
            status, message = self._status(error)
            task = asyncio.current_task()
            if not self.response.prepared or status == GONE or task is None:
                raise
            if isinstance(error, asyncio.CancelledError):
                task.uncancel()
            elif status == 500:
                LOG.error("a stream failed", exc_info=error)
            await self._send(failure(status, message))
            return status

    async def _text(self, index: int, session: TextSession, front: str) -> None:
        head = self._answer.head(index, front)

        async def tell(text: str) -> None:
            made, head[:] = [*head, self._answer.chunk(index, text)], []
            await self._send(*made)

        await session.run(tell)
        await self._send(*head, self._answer.chunk(index, "", session.finish))

    async def _send(self, *tables: dict[str, Any], done: bool = False) -> None:
        async with self._turn:
            if not self.response.prepared:
                await self.response.prepare(self._request)
            await self.response.write(b"".join(map(event, tables)) + (DONE if done else b""))


def _streams(sessions: TextSessions, asked: requests.TextRequest) -> list[TextStream]:
    """Those of a request; a prompt that does not fit is a fault of its field."""
    try:
        return sessions.streams(asked)
    except DataError as error:
        because = f": {error.because}" if error.because else ""
        long = any(len(one) > sessions.generator.context for one in asked.prompts)
        code = "context_length_exceeded" if long else None
        text = f"{error.message}{because}; try {error.hint}"
        raise CompletionError(text, asked.param, 400, code) from error


async def _whole(answer: TextAnswer, sessions: Sequence[TextSession], fronts: Sequence[str]) -> web.Response:
    texts: list[list[str]] = [[front] for front in fronts]

    def kept(parts: list[str]) -> Callable[[str], Awaitable[None]]:
        async def tell(text: str) -> None:
            parts.append(text)

        return tell

    await _together([one.run(kept(parts)) for one, parts in zip(sessions, texts, strict=True)])
    return web.json_response(answer.whole(["".join(parts) for parts in texts], sessions))


async def _together(texts: Sequence[Coroutine[Any, Any, None]]) -> None:
    """All of them; the first that fails ends the others."""
    tasks = [asyncio.ensure_future(one) for one in texts]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
