"""OpenAI's completions and chat over HTTP: texts, streams, sessions in turns, hang-ups, limits, the end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from npuflow.apps.serve.text.requests import TextLimits
from npuflow.base.errors import DataError
from tests.serve.served import Running, running
from tests.serve.texts import CHAT, COMPLETIONS, Events, Texts, asked, call, figure, reached, said

pytest.importorskip("tokenizers")

A, C = 40, 42  # tokens of the letters A and C


@pytest.fixture(scope="module")
def server(texts: Texts) -> Iterator[Running]:
    with running(texts.served()) as one:
        yield one


def long_seed(texts: Texts, prompt: str = "ABC", count: int = 40) -> int:
    """A seed whose text at temperature 2 has so many tokens."""
    return next(seed for seed in range(999) if len(texts.text(prompt, count, 2.0, seed)) >= count - 8)


def test_a_text_is_the_generators(server: Running, texts: Texts) -> None:
    for prompt in ("ABC", "HELLO", [A, A + 1, C]):
        status, found, _ = call(server, COMPLETIONS, asked(prompt, max_tokens=9))
        assert status == 200 and found["object"] == "text_completion" and found["model"] == "net"
        (choice,) = found["choices"]
        wanted = texts.stream(prompt, 9)
        assert (choice["text"], choice["index"], choice["logprobs"]) == ("".join(wanted), 0, None)
        made = len(wanted.tokens)
        assert choice["finish_reason"] == wanted.ended
        usage = {"prompt_tokens": len(prompt), "completion_tokens": made, "total_tokens": len(prompt) + made}
        assert found["usage"] == usage
    drawn = {"temperature": 2, "max_tokens": 40, "seed": long_seed(texts)}
    wanted = texts.text("ABC", 40, 2.0, drawn["seed"])
    for _ in range(2):
        assert call(server, COMPLETIONS, asked(**drawn))[1]["choices"][0]["text"] == wanted
    free = {call(server, COMPLETIONS, asked(temperature=2))[1]["choices"][0]["text"] for _ in range(9)}
    assert len(free) > 1, "without a seed texts differ"
    assert (
        call(server, COMPLETIONS, asked(**{**drawn, "max_tokens": None}))[1]["usage"]["completion_tokens"]
        == 16
    )
    few = call(server, COMPLETIONS, asked(**{**drawn, "top_p": 1e-6}))[1]["choices"][0]["text"]
    assert few == texts.text("ABC", 40)


def test_a_stream_has_the_same_text(server: Running, texts: Texts) -> None:
    drawn = {"temperature": 2, "max_tokens": 40, "seed": long_seed(texts)}
    stream = Events(server, COMPLETIONS, asked(**drawn, stream_options={"include_usage": True}))
    assert (
        stream.status == 200 and stream.answer.getheader("Content-Type") == "text/event-stream; charset=utf-8"
    )
    *chunks, last, usage, done = stream
    assert done == "[DONE]" and last["choices"][0]["finish_reason"] is not None and len(chunks) > 20
    assert said([*chunks, last]) == texts.text("ABC", 40, 2.0, drawn["seed"])
    assert usage["choices"] == [] and usage["usage"]["prompt_tokens"] == 3
    assert all(one["usage"] is None and one["id"] == last["id"] for one in chunks)
    plain = [*Events(server, COMPLETIONS, asked(max_tokens=3))]
    assert plain[-1] == "[DONE]" and all("usage" not in one for one in plain[:-1])


def test_a_conversation_goes_through_the_template(server: Running, texts: Texts) -> None:
    """The template of the checkpoint writes all messages, and > behind them."""
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "A"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "B"}, {"type": "text", "text": "C"}],
            "name": "me",
        },
        {"role": "assistant", "content": "D"},
        {"role": "user", "content": "E"},
    ]
    body = {"model": "net", "messages": messages, "temperature": 0, "max_completion_tokens": 7}
    status, found, _ = call(server, CHAT, body)
    (choice,) = found["choices"]
    assert status == 200 and found["object"] == "chat.completion"
    assert choice["message"] == {"role": "assistant", "content": texts.text("ABCDE>", 7)}
    first, *rest, done = Events(server, CHAT, body)
    assert first["object"] == "chat.completion.chunk" and done == "[DONE]"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert said(rest) == texts.text("ABCDE>", 7) and rest[-1]["choices"][0]["delta"] == {}
    assert rest[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
    drawn = {"temperature": 2, "seed": 3, "max_completion_tokens": None}
    whole = call(server, CHAT, {**body, **drawn})[1]["choices"][0]
    assert whole["message"]["content"] == texts.text("ABCDE>", None, 2.0, 3)


def test_several_prompts_and_echo(server: Running, texts: Texts) -> None:
    for prompts in (["AB", "HELLO"], [[A, A + 1], [C]]):
        wanted = [
            (one if isinstance(one, str) else texts.words.decode(one)) + texts.text(one, 6) for one in prompts
        ]
        found = call(server, COMPLETIONS, asked(prompts, max_tokens=6, echo=True))[1]
        assert [one["text"] for one in found["choices"]] == wanted
        assert [one["index"] for one in found["choices"]] == [0, 1]
        events = [*Events(server, COMPLETIONS, asked(prompts, max_tokens=6, echo=True))]
        assert [said(events, index) for index in (0, 1)] == wanted and events[-1] == "[DONE]"


@pytest.mark.promise("serve-text-stop")
def test_stop_strings_are_not_sent(server: Running, texts: Texts) -> None:
    """Tokens are single characters here: a string of three crosses two borders."""
    seed = long_seed(texts)
    text = texts.text("ABC", 40, 2.0, seed)
    stop = text[10:13]
    body = asked(temperature=2, seed=seed, max_tokens=40, stop=[stop, "never"])
    found = call(server, COMPLETIONS, body)[1]["choices"][0]
    assert found["text"] == text[: text.index(stop)] and found["finish_reason"] == "stop"
    *events, _ = Events(server, COMPLETIONS, body)
    assert said(events) == found["text"] and events[-1]["choices"][0]["finish_reason"] == "stop"
    near = call(server, COMPLETIONS, {**body, "max_tokens": 12, "stop": text[10:12] + "~"})[1]["choices"][0]
    assert near["text"] == text[:12] and near["finish_reason"] == "length", (
        "what was kept back is sent at the end"
    )


@pytest.mark.promise("serve-text-alike")
def test_eight_clients_at_once_get_what_one_gets(server: Running, texts: Texts) -> None:
    bodies = [asked("HELLO"[: 1 + i % 5], temperature=i % 3, seed=i, max_tokens=20 + i) for i in range(16)]
    wanted = [
        texts.text(one["prompt"], one["max_tokens"], float(one["temperature"]), one["seed"]) for one in bodies
    ]

    def text(i: int) -> str:
        if i % 2:
            return said([*Events(server, COMPLETIONS, bodies[i])])
        return str(call(server, COMPLETIONS, bodies[i])[1]["choices"][0]["text"])

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(text, range(16))] == wanted
    assert figure(server, "sessions") == figure(server, "waiting") == 0


def test_the_models(server: Running) -> None:
    status, found, _ = call(server, "/v1/models")
    assert status == 200 and [one["id"] for one in found["data"]] == ["net"]
    assert call(server, "/v1/models/net")[1] == found["data"][0]
    assert found["data"][0]["max_model_len"] == 128
    assert call(server, "/v1/models/none")[0] == 404


def test_metrics_count_tokens_and_sessions(texts: Texts) -> None:
    with running(texts.served()) as one:
        made = call(one, COMPLETIONS, asked("HELLO", max_tokens=7))[1]["usage"]["completion_tokens"]
        call(one, COMPLETIONS, asked(n=2))
        assert figure(one, 'tokens_total kind="prompt"') == 5
        assert figure(one, 'tokens_total kind="generated"') == made
        assert figure(one, 'requests_total code="200"') == figure(one, 'requests_total code="400"') == 1
        assert figure(one, "first_token_seconds_count") == 1 and figure(one, "request_seconds_count") == 2


@pytest.mark.promise("serve-text-turns")
def test_texts_are_made_in_turns(texts: Texts) -> None:
    """Also while the prompt of one runs: nobody waits for another's end."""
    model, gate = texts.gated()
    with running(model) as one, ThreadPoolExecutor(2) as pool:
        found = [pool.submit(call, one, COMPLETIONS, asked(letter * 5, max_tokens=1)) for letter in "AC"]
        reached(lambda: figure(one, "sessions") == 2 and len(gate.begun) == 1)
        gate.let_all()
        assert all(answer.result()[0] == 200 for answer in found)
        order = [tokens[0] for tokens in gate.begun]
        assert order in ([A, C] * 5, [C, A] * 5)


@pytest.mark.promise("serve-text-hang-up")
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up_frees_its_session(stream: bool, texts: Texts, caplog: Any) -> None:
    """In the prompt (no answer) or in the answer: the run that has begun is the last one."""
    model, gate = texts.gated(most=1)
    with running(model) as one:
        body = asked("HELLO", temperature=2, seed=long_seed(texts, "HELLO"), max_tokens=60)
        if stream:
            gate.leave.release(7)
            events = Events(one, COMPLETIONS, body)
            assert next(iter(events))["choices"][0]["text"]
            events.hang_up()
        else:
            events = Quiet(one, COMPLETIONS, body)
            reached(lambda: figure(one, "sessions") == 1 and len(gate.begun) == 1)
            events.hang_up()
        reached(lambda: figure(one, "sessions") == 0)
        assert figure(one, 'requests_total code="499"') == 1
        before = len(gate.begun)
        gate.let_all()
        assert call(one, COMPLETIONS, asked("ABC", max_tokens=9))[1]["choices"][0]["text"] == texts.text(
            "ABC", 9
        )
        others = gate.begun[before:]
        assert others[:3] == [[A], [A + 1], [C]], "nothing more was computed for the client that is gone"
    assert not caplog.records, caplog.text


class Quiet(Events):
    """A request without waiting for the head of its answer."""

    def __init__(self, one: Running, path: str, body: dict[str, Any]) -> None:
        import http.client
        import json

        self.connection = http.client.HTTPConnection(one.place, timeout=30)
        self.connection.request("POST", path, json.dumps(body))

    def hang_up(self) -> None:
        self.connection.close()


@pytest.mark.promise("serve-text-limits")
def test_too_many_wait(texts: Texts) -> None:
    """One text is made, one waits; the next is refused, and one that hangs up makes room."""
    model, gate = texts.gated(most=1, limit=1)
    with running(model) as one:
        made, waiting = Quiet(one, COMPLETIONS, asked()), None
        reached(lambda: figure(one, "sessions") == 1)
        waiting = Quiet(one, COMPLETIONS, asked())
        reached(lambda: figure(one, "waiting") == 1)
        for refused in (asked(), asked(stream=True), asked(["A", "B"])):
            status, found, headers = call(one, COMPLETIONS, refused)
            assert (
                status == 503 and headers["retry-after"] == "1" and found["error"]["type"] == "server_error"
            )
            assert "1 texts wait already" in found["error"]["message"]
        waiting.hang_up()
        reached(lambda: figure(one, "waiting") == 0)
        other = Quiet(one, COMPLETIONS, asked())
        reached(lambda: figure(one, "waiting") == 1)
        gate.let_all()
        assert [each.connection.getresponse().status for each in (made, other)] == [200, 200]
        assert call(one, COMPLETIONS, asked(["A", "B"]))[0] == 200, "one of both waits"
        assert figure(one, "sessions") == figure(one, "waiting") == 0


def test_no_text_waits_for_ever(texts: Texts) -> None:
    model, gate = texts.gated(most=1, timeout=0.1)
    with running(model) as one:
        made = Quiet(one, COMPLETIONS, asked(max_tokens=2))
        reached(lambda: figure(one, "sessions") == 1)
        for stream in (False, True):
            status, found, _ = call(one, COMPLETIONS, asked(stream=stream))
            assert status == 504 and found["error"]["message"] == "no session got free within 0.1 s"
        gate.let_all()
        assert made.connection.getresponse().status == 200, "what has begun may take longer"
        assert figure(one, "waiting") == 0


def test_a_fault_ends_one_text_only(texts: Texts, caplog: Any) -> None:
    """In front of the first token it has a status, later it is an event without [DONE]."""
    model, gate = texts.gated()
    with running(model) as one:
        body = asked(temperature=2, seed=long_seed(texts), max_tokens=60)
        gate.leave.release(4)
        stream = Events(one, COMPLETIONS, body)
        reached(lambda: len(gate.begun) == 5)
        gate.fault = RuntimeError("the machine is on fire")
        gate.let_all()
        *_, last = stream
        assert last["error"]["type"] == "server_error" and "its log says why" in last["error"]["message"]
        assert "the machine is on fire" in caplog.text
        assert (
            call(one, COMPLETIONS, body)[0] == 500
            and call(one, COMPLETIONS, {**body, "stream": True})[0] == 500
        )
        gate.fault = None
        assert call(one, COMPLETIONS, asked(max_tokens=9))[1]["choices"][0]["text"] == texts.text("ABC", 9)
        gate.fault = DataError("the logits have NaN")
        assert call(one, COMPLETIONS, body)[0] == 500, "it is no mistake of the client"
        assert figure(one, "sessions") == 0 and figure(one, 'requests_total code="500"') == 4
    assert "the logits have NaN" in caplog.text


def test_a_client_that_does_not_read_is_gone(texts: Texts) -> None:
    """What is sent to it waits for --timeout; then its session is free for the next."""
    model = texts.served(most=1, timeout=0.05)
    assert model.text is not None
    sessions = model.text
    streams = [texts.stream("ABC", 5), texts.stream("ABC", 5)]
    parts: list[str] = []

    async def never(text: str) -> None:
        await asyncio.Event().wait()

    async def kept(text: str) -> None:
        parts.append(text)

    async def both() -> None:
        with sessions.opened(streams, ()) as (first, second):
            with pytest.raises(ConnectionError, match=r"did not read for 0\.05 s"):
                await first.run(never)
            first.close()
            await second.run(kept)
        await sessions.close()

    asyncio.run(both())
    assert "".join(parts) == texts.text("ABC", 5)
    assert sessions.counts.active == sessions.counts.waiting == 0


@pytest.mark.promise("serve-text-end")
def test_streams_go_on_when_it_stops(texts: Texts) -> None:
    model, gate = texts.gated()
    seed = long_seed(texts)
    with running(model) as one:
        gate.leave.release(4)
        stream = Events(one, COMPLETIONS, asked(temperature=2, seed=seed, max_tokens=40))
        one.end()
        reached(lambda: refused(one))
        gate.let_all()
        *events, done = stream
        assert done == "[DONE]" and said(events) == texts.text("ABC", 40, 2.0, seed)


@pytest.mark.promise("serve-text-end")
def test_a_stream_that_is_not_ready_in_time_says_so(texts: Texts) -> None:
    model, gate = texts.gated(most=1)
    with running(model, stop_seconds=0.1) as one:
        gate.leave.release(4)
        stream = Events(one, COMPLETIONS, asked(temperature=2, seed=long_seed(texts), max_tokens=40))
        whole = Quiet(one, COMPLETIONS, asked())
        reached(lambda: figure(one, "waiting") == 1 and len(gate.begun) == 5)
        one.end()
        *_, last = stream
        assert (
            last["error"]["message"].startswith("the server stops")
            and last["error"]["type"] == "server_error"
        )
        assert whole.connection.getresponse().status == 503
        gate.let_all()


def refused(one: Running) -> bool:
    """Whether new connections are."""
    try:
        call(one, "/v1/models")
    except ConnectionError:
        return True
    return False


def test_limits_of_a_request(texts: Texts) -> None:
    with running(texts.served(limits=TextLimits(2, 20)), max_bytes=1000) as one:
        for body, param, text in (
            (asked(max_tokens=21), "max_tokens", "at most 20 tokens (--max-tokens)"),
            (asked(["A", "B", "C"]), "prompt", "at most 2"),
        ):
            status, found, _ = call(one, COMPLETIONS, body)
            assert status == 400 and found["error"]["param"] == param and text in found["error"]["message"]
        status, found, _ = call(one, COMPLETIONS, asked("A" * 1000))
        assert status == 413 and "--max-mb" in found["error"]["message"]
        messages = [{"role": "user", "content": "A"}]
        for seed in range(9):
            found = call(one, CHAT, {"model": "net", "messages": messages, "seed": seed})[1]
            assert found["usage"]["completion_tokens"] <= 20


def test_requests_at_once_leave_nothing(texts: Texts) -> None:
    """Clients that read, and clients that go at any moment, beside each other."""
    wanted = texts.text("ABC", 30, 2.0, 5)
    with running(texts.served(most=3)) as one:

        def ask(i: int) -> str:
            events = Events(one, COMPLETIONS, asked(temperature=2, seed=5, max_tokens=30))
            found = []
            for found_one in events:
                found.append(found_one)
                if i % 3 and len(found) == i % 7:
                    events.hang_up()
                    return wanted
            return said(found)

        with ThreadPoolExecutor(8) as pool:
            assert [*pool.map(ask, range(60))] == [wanted] * 60
        reached(lambda: figure(one, "sessions") == figure(one, "waiting") == 0)
