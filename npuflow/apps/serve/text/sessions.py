"""Sessions of one language model: how many hold a cache at a time, their turns, and what stops them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Literal

from npuflow.apps.serve.text.counts import TextCounts
from npuflow.apps.serve.text.requests import ConversationTokenizer, TextLimits, TextRequest
from npuflow.base.errors import InputError, UsageError
from npuflow.runner.text import TextGenerator, TextStream

Tell = Callable[[str], Awaitable[None]]
Finish = Literal["stop", "length"]


class TextSessions:
    """Texts of one model that are being made, and those that wait. All methods run on the event loop.

    `most` texts have a cache at a time, and are made in turns: the runner's `workers` threads take one run of
    the model (a token, or a chunk of a prompt) of each, in order, again and again. Others wait, the runner's
    `limit` at most, each for `timeout` seconds.
    """

    def __init__(
        self, generator: TextGenerator, tokenizer: ConversationTokenizer, *, most: int = 8,
        limits: TextLimits | None = None, timeout: float = 30.0,
    ) -> None:
        self.generator, self.tokenizer, self.limits = generator, tokenizer, limits or TextLimits()
        self.most, self.timeout, self.limit = most, timeout, generator.runner.limit
        self.counts = TextCounts()
        self.free = asyncio.Semaphore(most)
        self._pool = ThreadPoolExecutor(generator.runner.workers, "npuflow-text")

    def streams(self, request: TextRequest) -> list[TextStream]:
        """One for each prompt, of which nothing has run. DataError for a prompt that does not fit."""
        return [self.generator.stream(one, request.max_tokens, request.sampling) for one in request.prompts]

    @contextmanager
    def opened(self, streams: Sequence[TextStream], stops: Sequence[str]) -> Iterator[list[TextSession]]:
        """A session for each, which is freed at the end. UsageError NF-RUN-097 where too many wait."""
        counts = self.counts
        late = counts.waiting + len(streams) - max(0, self.most - counts.active)
        if self.limit and late > self.limit:
            raise UsageError(
                f"{counts.waiting} texts wait already, and {counts.active} are being made", code="NF-RUN-097"
            )
        found = [TextSession(self, one, stops) for one in streams]
        try:
            yield found
        finally:
            for one in found:
                one.close()

    async def turn(self, stream: TextStream) -> str:
        """One run of the model, behind those of the other sessions. RuntimeError for what fails in it: what
        a request says was looked at before."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, stream.advance)
        except InputError as error:
            raise RuntimeError(f"a run of {self.generator.runner.name} failed") from error

    async def close(self) -> None:
        """The end of the threads, behind the runs that they are in."""
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)


class TextSession:
    """One text: it waits, has a cache while it is made, and is closed. `finish`: by what it ended."""

    def __init__(self, sessions: TextSessions, stream: TextStream, stops: Sequence[str]) -> None:
        self.sessions, self.stream, self.stops = sessions, stream, StopStrings(stops)
        self.finish: Finish | None = None
        self.since = time.monotonic()
        self._state: Literal["waiting", "active", "closed"] = "waiting"
        sessions.counts.waiting += 1

    async def run(self, tell: Tell) -> None:
        """Make the text; `tell` is given its parts. TimeoutError where no session gets free, ConnectionError
        where the client does not take what `tell` sends. Cancelled, it ends with the run of the model that it
        is in."""
        await self._begin()
        counts, stream = self.sessions.counts, self.stream
        while self.finish is None:
            chosen, made = stream.chosen, len(stream.tokens)
            piece = await self.sessions.turn(stream)
            counts.generated += len(stream.tokens) - made
            if stream.chosen and not chosen:
                counts.first.add(time.monotonic() - self.since)
            text = self.stops.more(piece)
            if self.stops.found:
                self.finish = "stop"
            elif stream.ended is not None:
                self.finish = "stop" if stream.ended == "stop" else "length"
                text += self.stops.rest()
            if text:
                await self._told(tell, text)
        self.close()

    def close(self) -> None:
        """Free the place; a second call does nothing."""
        counts, state, self._state = self.sessions.counts, self._state, "closed"
        if state == "waiting":
            counts.waiting -= 1
        elif state == "active":
            counts.active -= 1
            self.sessions.free.release()

    async def _begin(self) -> None:
        seconds = self.sessions.timeout
        try:
            async with asyncio.timeout(seconds):
                await self.sessions.free.acquire()
        except TimeoutError:
            raise TimeoutError(f"no session got free within {seconds:g} s") from None
        counts, self._state = self.sessions.counts, "active"
        counts.waiting, counts.active = counts.waiting - 1, counts.active + 1
        counts.prompt += len(self.stream.prompt)

    async def _told(self, tell: Tell, text: str) -> None:
        seconds = self.sessions.timeout
        try:
            async with asyncio.timeout(seconds):
                await tell(text)
        except TimeoutError:
            raise ConnectionAbortedError(f"the client did not read for {seconds:g} s") from None


class StopStrings:
    """Pieces of a text in, what may be sent of it out. The first character that completes one of the strings
    ends the text, in front of that string. What may be the beginning of one is kept until more is known."""

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = tuple(strings)
        self.found = False
        self._kept = ""

    def more(self, piece: str) -> str:
        """What a further piece lets go. Behind the end nothing."""
        if self.found or not self.strings:
            return "" if self.found else piece
        text, self._kept = self._kept + piece, ""
        ends = [(at + len(one), at) for one in self.strings if (at := text.find(one)) >= 0]
        if ends:
            self.found = True
            return text[: min(ends)[1]]
        kept = max(_begun(text, one) for one in self.strings)
        text, self._kept = text[: len(text) - kept], text[len(text) - kept :]
        return text

    def rest(self) -> str:
        """What was kept back of a text that has ended."""
        text, self._kept = self._kept, ""
        return text


def _begun(text: str, string: str) -> int:
    """Characters at the end of a text that are the beginning of a string."""
    longest = min(len(text), len(string) - 1)
    return next((n for n in range(longest, 0, -1) if string.startswith(text[-n:])), 0)
