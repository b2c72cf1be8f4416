"""A tiny language model behind the server, whose runs a test may hold back."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from npuflow.apps.serve.served import Served
from npuflow.apps.serve.text.requests import TextLimits
from npuflow.apps.serve.text.sessions import TextSessions
from npuflow.checkpoints import opened
from npuflow.checkpoints.tokenizer import CheckpointTokenizer, tokenizer
from npuflow.runner.runner import Runner
from npuflow.runner.text import TextGenerator, TextStream, TokenSampling
from tests.serve.served import Running

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


class Gate:
    """A backend each of whose runs needs leave. `begun`: the tokens of the runs that began, in order."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.leave, self.open = inner, threading.Semaphore(0), False
        self.begun: list[list[int]] = []
        self.fault: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, samples: Any, dump: Any) -> Any:
        self.begun.append([int(token) for token in samples[0]["tokens"].reshape(-1)])
        if not self.open:
            assert self.leave.acquire(timeout=30)
        if self.fault is not None:
            raise self.fault
        return self.inner.run(samples, dump)

    def let_all(self) -> None:
        self.open = True
        self.leave.release(100)


class Texts:
    """The checkpoint in a folder, what it says alone, and what serves it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.words: CheckpointTokenizer = tokenizer(opened(folder))
        self.alone = TextGenerator(Runner(folder), self.words)

    def served(
        self, most: int = 8, timeout: float = 30.0, limits: TextLimits | None = None, **how: Any
    ) -> Served:
        runner = Runner(self.folder, **how)
        sessions = TextSessions(
            TextGenerator(runner, self.words), self.words, most=most, timeout=timeout, limits=limits
        )
        return Served("net", runner, text=sessions)

    def gated(self, **how: Any) -> tuple[Served, Gate]:
        one = self.served(**how)
        gate = Gate(one.runner.backend)
        one.runner.backend = gate  # type: ignore[assignment]
        return one, gate

    def stream(
        self, prompt: str | list[int], count: int | None, temperature: float = 0.0, seed: int = 0
    ) -> TextStream:
        """What the generator makes alone."""
        ids = self.words.encode(prompt) if isinstance(prompt, str) else prompt
        return self.alone.stream(ids, count, TokenSampling(temperature, 1.0, seed))

    def text(self, *asked: Any) -> str:
        return "".join(self.stream(*asked))


def asked(prompt: Any = "ABC", **more: Any) -> dict[str, Any]:
    return {"model": "net", "prompt": prompt, "temperature": 0, **more}


def call(one: Running, path: str, body: Any = None) -> tuple[int, Any, dict[str, str]]:
    """Status, JSON and headers of an answer: to a POST where there is a body."""
    connection = http.client.HTTPConnection(one.place, timeout=30)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection.request("GET" if body is None else "POST", path, data)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    found = json.loads(text) if "json" in str(answer.getheader("Content-Type")) else text.decode()
    return answer.status, found, {name.lower(): value for name, value in answer.getheaders()}


class Events:
    """An answer that is read event by event."""

    def __init__(self, one: Running, path: str, body: dict[str, Any]) -> None:
        self.connection = http.client.HTTPConnection(one.place, timeout=30)
        self.connection.request("POST", path, json.dumps({**body, "stream": True}))
        self.answer = self.connection.getresponse()
        self.status = self.answer.status

    def __iter__(self) -> Iterator[Any]:
        """Objects, and "[DONE]"."""
        while line := self.answer.readline():
            if line.strip():
                assert line.startswith(b"data: ") and self.answer.readline() == b"\n"
                text = line.removeprefix(b"data: ").strip().decode()
                yield text if text == "[DONE]" else json.loads(text)

    def hang_up(self) -> None:
        self.answer.close()
        self.connection.close()


def said(events: list[Any], index: int = 0) -> str:
    """The text of a stream's events."""
    parts = [one["choices"][0] for one in events if one != "[DONE]" and one["choices"]]
    return "".join(
        one["text"] if "text" in one else one["delta"].get("content", "")
        for one in parts
        if one["index"] == index
    )


def figure(one: Running, name: str) -> float:
    """A figure of /metrics, by its name with the labels behind the model's."""
    name, _, more = name.partition(" ")
    labels = re.escape(f'{{model="net"{"," + more if more else ""}}}')
    found = re.search(rf"^npuflow_text_{name}{labels} (\S+)$", call(one, "/metrics")[1], re.M)
    return float(found[1]) if found else 0.0


def reached(condition: Callable[[], bool]) -> None:
    """Wait until a state that must come is there."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.005)
