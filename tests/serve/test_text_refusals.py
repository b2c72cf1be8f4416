"""Wrong requests for text: one clear error each, in the form that OpenAI's clients read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from npuflow.apps.serve.served import Served
from npuflow.runner.runner import Runner
from tests.runner.programs import split
from tests.serve.served import Running, running
from tests.serve.texts import CHAT, COMPLETIONS, Texts, asked, call

pytest.importorskip("tokenizers")

USER = [{"role": "user", "content": "A"}]


@pytest.fixture(scope="module")
def server(texts: Texts) -> Iterator[Running]:
    with running(texts.served(), Served("numbers", Runner(split()))) as one:
        yield one


@pytest.mark.parametrize(
    ("body", "param", "text"),
    [
        ({"model": None}, "model", '"model" is missing; it is a string'),
        ({"model": 5}, "model", '"model" is not a string'),
        ({"prompt": None}, "prompt", '"prompt" is missing'),
        ({"prompt": []}, "prompt", "not a text"),
        ({"prompt": ["A", 5]}, "prompt", "not a text"),
        ({"prompt": [True]}, "prompt", "not a text"),
        ({"prompt": [[]]}, "prompt", "not a text"),
        ({"prompt": {"text": "A"}}, "prompt", "not a text"),
        ({"prompt": ""}, "prompt", "the prompt has 0 tokens"),
        ({"prompt": [3, 80]}, "prompt", "the prompt has the token 80: "),
        ({"prompt": [-1]}, "prompt", "the prompt has the token -1: "),
        ({"max_tokens": 0}, "max_tokens", '"max_tokens" is not a whole number, at least 1'),
        ({"max_tokens": 2.5}, "max_tokens", "whole number"),
        ({"max_tokens": True}, "max_tokens", "whole number"),
        ({"temperature": 2.1}, "temperature", '"temperature" is not a number from 0 to 2'),
        ({"temperature": "0"}, "temperature", "number"),
        ({"top_p": 0}, "top_p", "above 0"),
        ({"top_p": 1.5}, "top_p", "from 0 to 1"),
        ({"seed": 1.5}, "seed", "whole number"),
        ({"seed": 1 << 64}, "seed", "whole number"),
        ({"stop": ""}, "stop", "none of them empty"),
        ({"stop": ["a"] * 5}, "stop", "at most 4"),
        ({"stop": [5]}, "stop", "a string"),
        ({"stream": 1}, "stream", "true or false"),
        ({"stream_options": {"include_usage": True}}, "stream_options", 'only for "stream": true'),
        (
            {"stream": True, "stream_options": {"usage": True}},
            "usage",
            '"usage" is no parameter',
        ),
        ({"stream": True, "stream_options": 5}, "stream_options", "an object"),
        ({"n": 2}, "n", '"n" is not supported: leave it out, or give 1'),
        ({"n": True}, "n", "not supported"),
        ({"best_of": 3}, "best_of", "not supported"),
        ({"logprobs": 3}, "logprobs", '"logprobs" is not supported: leave it out'),
        ({"logprobs": 0}, "logprobs", "not supported"),
        ({"echo": "yes"}, "echo", "true or false"),
        ({"suffix": "end"}, "suffix", "not supported"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "not supported"),
        ({"presence_penalty": 0.5}, "presence_penalty", "not supported"),
        ({"tempreature": 1}, "tempreature", '"tempreature" is no parameter; "temperature" is one'),
        ({"messages": USER}, "messages", "no parameter"),
    ],
)
def test_a_wrong_completion_is_one_error(
    server: Running, body: dict[str, Any], param: str, text: str
) -> None:
    status, found, _ = call(
        server, COMPLETIONS, asked(**body) if "prompt" not in body else {**asked(), **body}
    )
    assert status == 400 and found["error"]["type"] == "invalid_request_error"
    assert found["error"]["param"] == param and text in found["error"]["message"], found


@pytest.mark.parametrize(
    ("body", "param", "text"),
    [
        ({"messages": None}, "messages", "at least one message"),
        ({"messages": []}, "messages", "at least one message"),
        ({"messages": ["A"]}, "messages", "messages[0] is not an object"),
        (
            {"messages": [{"content": "A"}]},
            "messages",
            "messages[0]: the role is one of system, user, assistant",
        ),
        ({"messages": [*USER, {"role": "tool", "content": "A"}]}, "messages", "messages[1]: the role"),
        ({"messages": [{"role": ["user"], "content": "A"}]}, "messages", "messages[0]: the role"),
        ({"messages": [{"role": "user"}]}, "messages", "the content is a text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages",
            "the content is a text",
        ),
        ({"messages": [{"role": "assistant", "content": "", "tool_calls": []}]}, "messages", '"tool_calls"'),
        ({"tools": [{"type": "function"}]}, "tools", "not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format", 'or give {"type": "text"}'),
        ({"logprobs": True}, "logprobs", "or give false"),
        ({"top_logprobs": 2}, "top_logprobs", "not supported"),
        ({"max_completion_tokens": -1}, "max_completion_tokens", "at least 1"),
        ({"prompt": "A"}, "prompt", "no parameter"),
        ({"echo": True}, "echo", "no parameter"),
    ],
)
def test_a_wrong_conversation_is_one_error(
    server: Running, body: dict[str, Any], param: str, text: str
) -> None:
    status, found, _ = call(server, CHAT, {"model": "net", "messages": USER, **body})
    assert status == 400 and found["error"]["type"] == "invalid_request_error"
    assert found["error"]["param"] == param and text in found["error"]["message"], found


def test_a_prompt_above_the_context(server: Running) -> None:
    """A stream of it has the same status and no events."""
    messages = [{"role": "user", "content": "A" * 200}]
    for path, body, param in (
        (COMPLETIONS, asked("A" * 129), "prompt"),
        (COMPLETIONS, asked(["A", "A" * 129], stream=True), "prompt"),
        (CHAT, {"model": "net", "messages": messages, "stream": True}, "messages"),
    ):
        status, found, _ = call(server, path, body)
        assert status == 400 and found["error"]["code"] == "context_length_exceeded"
        assert found["error"]["param"] == param and "holds 128" in found["error"]["message"]


def test_models_that_make_no_text(server: Running) -> None:
    for path in (COMPLETIONS, CHAT):
        for name, text in (("none", 'no model "none" (those that make text: net)'), ("numbers", "--model")):
            status, found, _ = call(server, path, {"model": name, "prompt": "A"})
            assert status == 404 and found["error"]["code"] == "model_not_found"
            assert found["error"]["param"] == "model" and text in found["error"]["message"]


def test_what_is_no_request(server: Running) -> None:
    for body, text in (
        (b"{", "not JSON"),
        (b"[]", "not an object"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
    ):
        status, found, _ = call(server, COMPLETIONS, body)
        assert status == 400 and text in found["error"]["message"]
    status, found, _ = call(server, COMPLETIONS)
    assert status == 405 and found["error"]["message"] == "GET is not for this address: POST"
    status, found, _ = call(server, "/v1/embeddings", {})
    assert status == 404 and "/v1/chat/completions" in found["error"]["message"]


def test_what_changes_nothing_is_taken(server: Running) -> None:
    plain = call(server, COMPLETIONS, asked(max_tokens=3))[1]["choices"]
    neutral = {
        "n": 1,
        "best_of": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "logit_bias": {},
        "suffix": "",
        "user": "me",
        "stop": [],
        "stream": False,
        "seed": -5,
        "echo": None,
    }
    assert call(server, COMPLETIONS, asked(max_tokens=3, **neutral))[1]["choices"] == plain
    status, _, _ = call(
        server,
        CHAT,
        {
            "model": "net",
            "messages": USER,
            "tools": [],
            "tool_choice": "none",
            "logprobs": False,
            "response_format": {"type": "text"},
            "metadata": {"a": "b"},
            "store": False,
            "max_tokens": 2,
        },
    )
    assert status == 200
