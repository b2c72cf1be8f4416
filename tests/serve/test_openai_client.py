"""The server, asked by OpenAI's own client: texts, streams, conversations, errors, hang-ups."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.serve.served import Running, running
from tests.serve.texts import Texts, figure, reached

pytest.importorskip("tokenizers")

if find_spec("openai") is None:
    pytest.skip("pip install openai: OpenAI's own client", allow_module_level=True)

HELLO = [{"role": "system", "content": "HELLO"}, {"role": "user", "content": "ABC"}]


@pytest.fixture(scope="module")
def server(texts: Texts) -> Iterator[Running]:
    with running(texts.served()) as one:
        yield one


def client(one: Running) -> Any:
    import openai  # takes seconds: not while tests are collected

    return openai.OpenAI(base_url=f"{one.address}/v1", api_key="none", max_retries=0, timeout=30)


@pytest.mark.promise("serve-text-client")
def test_completions(server: Running, texts: Texts) -> None:
    one = client(server)
    assert [model.id for model in one.models.list()] == ["net"] and one.models.retrieve("net").id == "net"
    how = {"model": "net", "max_tokens": 20, "temperature": 1.5, "seed": 7}
    for prompt in ("ABC", [40, 41, 42]):
        found = one.completions.create(prompt=prompt, **how)
        assert found.choices[0].text == texts.text(prompt, 20, 1.5, 7)
        assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    several = one.completions.create(prompt=["ABC", "HELLO"], echo=True, **how)
    assert [choice.text for choice in several.choices] == [
        one + texts.text(one, 20, 1.5, 7) for one in ("ABC", "HELLO")
    ]
    stream = one.completions.create(prompt="ABC", stream=True, stream_options={"include_usage": True}, **how)
    *chunks, usage = stream
    assert "".join(chunk.choices[0].text for chunk in chunks) == texts.text("ABC", 20, 1.5, 7)
    assert chunks[-1].choices[0].finish_reason in ("stop", "length") and usage.usage.prompt_tokens == 3


@pytest.mark.promise("serve-text-client")
def test_conversations(server: Running, texts: Texts) -> None:
    one = client(server)
    how = {"model": "net", "messages": HELLO, "max_tokens": 20, "temperature": 1.5, "seed": 7}
    wanted = texts.text("HELLOABC>", 20, 1.5, 7)
    found = one.chat.completions.create(**how)
    assert found.choices[0].message.content == wanted and found.choices[0].message.role == "assistant"
    chunks = [*one.chat.completions.create(stream=True, **how)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == wanted
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == found.choices[0].finish_reason
    stop = wanted[3:5]
    with one.chat.completions.stream(**how, stop=stop) as stream:
        said = "".join(event.delta for event in stream if event.type == "content.delta")
    assert said == wanted[: wanted.index(stop)]


def test_errors(server: Running) -> None:
    import openai  # takes seconds: not while tests are collected

    one = client(server)
    with pytest.raises(openai.BadRequestError, match="from 0 to 2") as bad:
        one.completions.create(model="net", prompt="A", temperature=3)
    assert bad.value.param == "temperature" and bad.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as absent:
        one.chat.completions.create(model="gpt", messages=HELLO)
    assert absent.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        one.completions.create(model="net", prompt="A" * 200, stream=True)
    assert long.value.code == "context_length_exceeded"


def test_a_client_is_told_what_happens(texts: Texts) -> None:
    """A full queue has a status on which clients try again; a server's end is an error in its streams."""
    import openai  # takes seconds: not while tests are collected

    model, gate = texts.gated(most=1, limit=1)
    with running(model, stop_seconds=0.1) as server:
        one = client(server)
        gate.leave.release(6)
        how = {"model": "net", "prompt": "ABC", "temperature": 2.0, "seed": 4, "stream": True}
        stream = one.completions.create(**how, max_tokens=60)
        assert next(iter(stream)).choices[0].text
        reached(lambda: figure(server, "sessions") == 1)
        with pytest.raises(openai.InternalServerError, match="wait already") as full:
            one.completions.create(**{**how, "prompt": ["A", "B"]})
        assert full.value.status_code == 503 and full.value.response.headers["Retry-After"] == "1"
        server.end()
        with pytest.raises(openai.APIError, match="the server stops"):
            list(stream)
        gate.let_all()


def test_a_stream_that_is_closed_frees_its_session(texts: Texts) -> None:
    model, gate = texts.gated(most=1)
    with running(model) as server:
        gate.leave.release(6)
        how = {"model": "net", "messages": HELLO[1:], "temperature": 2.0, "seed": 4, "stream": True}
        with client(server).chat.completions.create(**how) as stream:
            assert next(iter(stream)).choices[0].delta.role == "assistant"
            assert figure(server, "sessions") == 1
        reached(lambda: figure(server, "sessions") == 0)
        gate.let_all()
