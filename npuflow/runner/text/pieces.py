"""Turns tokens into pieces of text as they come, each of whole characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

PART = "\ufffd"                           # what stands for bytes that are no character, or not yet


class TextTokenizer(Protocol):
    """What the generator knows of a tokenizer."""

    @property
    def stops(self) -> tuple[int, ...]:
        """Tokens that end an answer."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of tokens."""


class TextPieces:
    """The text behind a prompt. A character may have several tokens: its piece comes with the last of them.
    The prompt is decoded with its continuation, since a tokenizer may leave out a space at a text's start.
    Pieces together are the decoded text; where a tokenizer decodes later bytes, which are no character, so
    that earlier text changes, what is out stays."""

    def __init__(self, tokenizer: TextTokenizer, prompt: Sequence[int]) -> None:
        self.tokenizer, self.ids = tokenizer, list(prompt)
        self.told = len(tokenizer.decode(self.ids))     # characters of the text that are out, or the prompt's

    def more(self, token: int) -> str:
        """What a further token completes; often nothing."""
        self.ids.append(token)
        text = self.tokenizer.decode(self.ids)
        return "" if text.endswith(PART) else self._new(text)

    def rest(self) -> str:
        """What the last tokens began and nothing completes."""
        return self._new(self.tokenizer.decode(self.ids))

    def _new(self, text: str) -> str:
        piece, self.told = text[self.told :], max(self.told, len(text))
        return piece
