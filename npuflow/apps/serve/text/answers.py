"""Answers with text as OpenAI's protocol has them: whole, in chunks of a stream, and errors."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from npuflow.apps.serve.text.fields import CompletionError
from npuflow.apps.serve.text.sessions import TextSession

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class TextAnswer:
    """What all parts of one answer share. `usage`: whether its chunks have a field for the numbers of tokens,
    which the last one fills."""

    model: str
    chat: bool
    usage: bool = False
    name: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, texts: Sequence[str], sessions: Sequence[TextSession]) -> dict[str, Any]:
        made: list[dict[str, Any]] = [
            {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
            for text in texts
        ]
        choices = [
            self._choice(i, one, session.finish)
            for i, (one, session) in enumerate(zip(made, sessions, strict=True))
        ]
        return {**self._head("chat.completion"), "choices": choices, "usage": counted(sessions)}

    def head(self, index: int, front: str) -> list[dict[str, Any]]:
        """Chunks in front of a continuation: of a conversation who speaks, else the prompt's echo."""
        if self.chat:
            speaks = {"delta": {"role": "assistant", "content": ""}}
            return [self._part([self._choice(index, speaks, None)], None)]
        return [self.chunk(index, front)] if front else []

    def chunk(self, index: int, text: str, finish: str | None = None) -> dict[str, Any]:
        """A part of a text; the last one, without text, has what it ended by."""
        delta = {"content": text} if text else {}
        made = {"delta": delta} if self.chat else {"text": text}
        return self._part([self._choice(index, made, finish)], None)

    def end(self, sessions: Sequence[TextSession]) -> dict[str, Any]:
        """The last chunk of a stream that asks for the numbers of tokens."""
        return self._part([], counted(sessions))

    def _part(self, choices: list[dict[str, Any]], usage: dict[str, int] | None) -> dict[str, Any]:
        more = {"usage": usage} if self.usage else {}
        return {**self._head("chat.completion.chunk"), "choices": choices, **more}

    def _head(self, conversation: str) -> dict[str, Any]:
        kind, front = (conversation, "chatcmpl") if self.chat else ("text_completion", "cmpl")
        return {"id": f"{front}-{self.name}", "object": kind, "created": self.created, "model": self.model}

    def _choice(self, index: int, made: dict[str, Any], finish: str | None) -> dict[str, Any]:
        return {"index": index, **made, "logprobs": None, "finish_reason": finish}


def counted(sessions: Sequence[TextSession]) -> dict[str, int]:
    """Tokens of prompts and of what was made, without those that end a text."""
    prompt = sum(len(one.stream.prompt) for one in sessions)
    made = sum(len(one.stream.tokens) for one in sessions)
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


def event(table: dict[str, Any]) -> bytes:
    """An object as a server-sent event."""
    return b"data: " + json.dumps(table, ensure_ascii=False).encode() + b"\n\n"


def failure(status: int, message: str, error: Exception | None = None) -> dict[str, Any]:
    """An error as OpenAI's clients read it."""
    own = error if isinstance(error, CompletionError) else None
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {
        "message": message, "type": kind, "param": own and own.param, "code": own and own.code,
    }}
