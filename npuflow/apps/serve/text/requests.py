"""Requests for text as OpenAI's protocol has them: what continues which prompt, and how."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from npuflow.apps.serve.text.fields import CompletionError, Fields
from npuflow.base.errors import InputError
from npuflow.runner.text import TextTokenizer, TokenSampling

SEEDS = 1 << 64
STOPS = 4                                 # strings that stop a text, at most
TOKENS = 16                               # of a completion that states no number
ROLES = ("system", "user", "assistant")
SHARED = ("model", "max_tokens", "temperature", "top_p", "seed", "stop", "stream", "stream_options")
IGNORED = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
_REFUSED: dict[str, Sequence[Any]] = {
    "n": (1,), "presence_penalty": (0, 0.0), "frequency_penalty": (0, 0.0), "logit_bias": ({},),
}
COMPLETION: dict[str, Sequence[Any]] = {**_REFUSED, "best_of": (1,), "logprobs": (), "suffix": ("",)}
CHAT: dict[str, Sequence[Any]] = {
    **_REFUSED, "logprobs": (False,), "top_logprobs": (), "tools": ([],), "tool_choice": ("none",),
    "functions": ([],), "function_call": ("none",), "parallel_tool_calls": (False, True),
    "response_format": ({"type": "text"},), "modalities": (["text"],), "audio": (), "prediction": (),
    "reasoning_effort": ("none",), "verbosity": (), "web_search_options": (),
}


class ConversationTokenizer(TextTokenizer, Protocol):
    """What the server knows of a tokenizer: `CheckpointTokenizer` is one."""

    def encode(self, text: str) -> list[int]:
        """Numbers of the tokens of a text."""

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Numbers of the tokens of a conversation, up to where the answer begins."""


@dataclass(frozen=True)
class TextRequest:
    """`prompts`: tokens of each; `fronts`: the text that is sent in front of each continuation; `usage`:
    whether a stream ends with the numbers of tokens."""

    prompts: tuple[list[int], ...]
    fronts: tuple[str, ...]
    max_tokens: int | None
    sampling: TokenSampling
    stops: tuple[str, ...]
    stream: bool
    usage: bool
    param: str
    """The field that the prompts are of."""


@dataclass(frozen=True)
class TextLimits:
    """Of one request: the prompts that it may hold, and the tokens that it may ask for (None: any number)."""

    prompts: int = 64
    tokens: int | None = None


def completion(fields: Fields, tokenizer: ConversationTokenizer, limits: TextLimits) -> TextRequest:
    """A request to /v1/completions."""
    fields.neutral(COMPLETION)
    fields.only((*SHARED, *IGNORED, *COMPLETION, "prompt", "echo"))
    echo, how = fields.flag("echo"), _how(fields, limits, "max_tokens")
    given = _prompts(fields.table.get("prompt"), limits.prompts)
    prompts = tuple(tokenizer.encode(one) if isinstance(one, str) else one for one in given)
    fronts = tuple(
        "" if not echo else one if isinstance(one, str) else tokenizer.decode(one) for one in given
    )
    if "max_tokens" not in fields.table:
        how["max_tokens"] = min(TOKENS, limits.tokens or TOKENS)
    return TextRequest(prompts, fronts, **how, param="prompt")


def conversation(fields: Fields, tokenizer: ConversationTokenizer, limits: TextLimits) -> TextRequest:
    """A request to /v1/chat/completions: messages, which the checkpoint's template makes a prompt."""
    fields.neutral(CHAT)
    fields.only((*SHARED, *IGNORED, *CHAT, "messages", "max_completion_tokens"))
    name = "max_completion_tokens" if "max_completion_tokens" in fields.table else "max_tokens"
    how = _how(fields, limits, name)
    messages = fields.table.get("messages")
    if not isinstance(messages, list) or not messages:
        raise CompletionError('"messages" is not a list of at least one message', "messages")
    written = [_message(one, f"messages[{i}]") for i, one in enumerate(messages)]
    try:
        prompt = tokenizer.chat(written)
    except InputError as error:
        because = f": {error.because}" if error.because else ""
        raise CompletionError(f"{error.message}{because}; try {error.hint}", "messages") from error
    return TextRequest((prompt,), ("",), **how, param="messages")


def _how(fields: Fields, limits: TextLimits, name: str) -> dict[str, Any]:
    """What both kinds of requests say of their answer."""
    count = fields.whole(name, 1)
    if count is not None and limits.tokens is not None and count > limits.tokens:
        raise CompletionError(
            f'"{name}" is {count}; this server makes at most {limits.tokens} tokens (--max-tokens)', name
        )
    stream, options = fields.flag("stream"), fields.object("stream_options")
    if options is not None:
        if not stream:
            raise CompletionError('"stream_options" is only for "stream": true', "stream_options")
        options.only(("include_usage", "include_obfuscation"))
    temperature, top_p = fields.number("temperature", 1.0, 0.0, 2.0), fields.number("top_p", 1.0, 0.0, 1.0)
    if not top_p:
        raise CompletionError('"top_p" is 0; it is above 0, at most 1', "top_p")
    seed = fields.whole("seed", -(SEEDS >> 1), SEEDS - 1)
    seed = secrets.randbelow(SEEDS) if seed is None else seed % SEEDS
    return {
        "max_tokens": count or limits.tokens,
        "sampling": TokenSampling(temperature, top_p, seed),
        "stops": fields.strings("stop", STOPS),
        "stream": stream,
        "usage": options is not None and options.flag("include_usage"),
    }


def _prompts(value: Any, most: int) -> list[str | list[int]]:
    """One text or list of tokens, or several of either."""
    several = isinstance(value, list) and bool(value) and not all(type(one) is int for one in value)
    found = value if several else [value]
    if not all(isinstance(one, str) or _tokens(one) for one in found):
        raise CompletionError(
            '"prompt" is missing; it is a text, a list of texts, or tokens' if value is None else
            '"prompt" is not a text, a list of texts, a list of tokens or a list of such lists', "prompt",
        )
    if len(found) > most:
        raise CompletionError(f'"prompt" has {len(found)} texts; a request holds at most {most}', "prompt")
    return list(found)


def _tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(one) is int for one in value)


def _message(value: Any, place: str) -> dict[str, str]:
    """A message as templates know it: its role, and its content as one text."""
    if not isinstance(value, dict):
        raise CompletionError(f"{place} is not an object with role and content", "messages")
    fields = Fields(value)
    role = fields.table.get("role")
    role = "system" if role == "developer" else role
    if role not in ROLES:
        raise CompletionError(f"{place}: the role is one of {', '.join(ROLES)}", "messages")
    for name in fields.table:
        if name not in ("role", "content", "name", "refusal"):
            raise CompletionError(f'{place}: "{name}" is not supported', "messages")
    return {"role": role, "content": _content(fields.table.get("content"), place)}


def _content(value: Any, place: str) -> str:
    if isinstance(value, str):
        return value
    parts: list[Any] = value if isinstance(value, list) else [None]
    for one in parts:
        if not isinstance(one, dict) or one.get("type") != "text" or not isinstance(one.get("text"), str):
            raise CompletionError(
                f'{place}: the content is a text, or a list of {{"type": "text", "text": "..."}}', "messages"
            )
    return "".join(one["text"] for one in parts)
