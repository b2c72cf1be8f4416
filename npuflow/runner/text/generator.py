"""Generates text with a language model that a runner runs: a prompt in chunks, then token by token."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, Self

from npuflow.base.errors import DataError, UsageError
from npuflow.runner.language import TokenModel
from npuflow.runner.ports import Array
from npuflow.runner.runner import Runner
from npuflow.runner.text.sampling import TokenSampling

End = Literal["stop", "length", "full"]
GREEDY = TokenSampling()
PART = "\ufffd"                           # what stands for bytes that are no character, or not yet


class TextGenerator:
    """Streams text of a runner's model: the input `tokens` [1, chunk], the states `position`,
    `cache.LAYER.key` and `cache.LAYER.value` [1, heads, context, size], the output `logits` [1, vocabulary].

    `chunk`: tokens that a prompt has at least, those of the shortest run; `context`: tokens that the cache
    holds. Any number of threads may share a generator: every stream is a session of its own. The prompt runs
    in the longest chunks that the program has.
    """

    def __init__(self, runner: Runner, tokenizer: TextTokenizer) -> None:
        self.runner, self.tokenizer = runner, tokenizer
        self.model: TokenModel = runner.session().model
        self.chunk, self.context = self.model.chunks[0], self.model.context
        self.vocabulary = self.model.vocabulary

    def stream(
        self, prompt: Sequence[int], max_tokens: int | None = None, sampling: TokenSampling = GREEDY
    ) -> TextStream:
        """The text that follows tokens, piece by piece. It ends at a token of the tokenizer's `stops`, after
        `max_tokens`, or where the cache is full. UsageError or DataError for a prompt that does not fit."""
        prompt = [int(token) for token in prompt]
        if max_tokens is not None and max_tokens < 1:
            raise UsageError(f"{max_tokens} tokens are asked for", hint="at least 1", code="NF-RUN-064")
        if not self.chunk <= len(prompt) <= self.context:
            few = len(prompt) < self.chunk
            raise DataError(
                f"the prompt has {len(prompt):,} token{'' if len(prompt) == 1 else 's'}",
                because=f"a run takes {self.chunk:,}" if few else
                f"the cache of {self.runner.name} holds {self.context:,}",
                hint="a longer prompt, or a program with { chunk = 1 } among [model] shapes" if few and prompt
                else "a text with at least one token" if few
                else "a shorter prompt, or a program built with a larger [model] dims context",
                code="NF-RUN-065",
            )
        wrong = next((token for token in prompt if not 0 <= token < self.vocabulary), None)
        if wrong is not None:
            raise DataError(
                f"the prompt has the token {wrong:,}",
                because=f"{self.runner.name} knows {self.vocabulary:,} tokens",
                hint="take the tokenizer of the checkpoint that it was built from", code="NF-RUN-066",
            )
        return TextStream(self, prompt, max_tokens, sampling)


class TextStream:
    """An iterator over pieces of text. `tokens`: those generated so far, without the one that ended it;
    `ended`: by what, once it has: "stop", "length" (`max_tokens`) or "full"; `session`: with the cache;
    `runs`: of the model; `prompt_runs`: those of the prompt, by the tokens of a run; `chosen`: how many
    tokens, with the one that ended it; `seconds` of computing so far, and `first_seconds`, until the first
    token."""

    def __init__(
        self, generator: TextGenerator, prompt: Sequence[int], max_tokens: int | None, sampling: TokenSampling
    ) -> None:
        self.prompt, self.max_tokens, self.sampling = tuple(prompt), max_tokens, sampling
        self.tokens: list[int] = []
        self.ended: End | None = None
        self.runs = self.chosen = 0
        self.prompt_runs: dict[int, int] = {}
        self.seconds = self.first_seconds = 0.0
        self._generator, self.session = generator, generator.runner.session()
        self._known = list(prompt)                      # tokens so far; the cache lacks the last of them
        self._pieces, self._random = TextPieces(generator.tokenizer, self.prompt), sampling.generator()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        while self.ended is None:
            if piece := self.advance():
                return piece
        raise StopIteration

    def advance(self) -> str:
        """One run of the model, and the text that its token completes: often none, as while the prompt runs.
        Who has several streams runs them in turns by it. Nothing runs once the text has ended."""
        if self.ended is not None:
            return ""
        begun = time.perf_counter()
        logits = self._run()
        token = None if logits is None else self.sampling.chosen(logits, self._random)
        self.seconds += time.perf_counter() - begun
        if token is None:
            return ""
        self.chosen += 1
        self.first_seconds = self.first_seconds or self.seconds
        self.prompt_runs = self.prompt_runs or dict(self.session.runs)
        piece = self._followed(token)
        return piece if self.ended is None else piece + self._pieces.rest()

    def _followed(self, token: int) -> str:
        """What a token completes; `ended` is set where it is the last one."""
        if token in self._generator.tokenizer.stops:
            self.ended = "stop"
            return ""
        self.tokens.append(token)
        self._known.append(token)
        if len(self.tokens) == self.max_tokens:
            self.ended = "length"
        elif len(self._known) > self._generator.context:
            self.ended = "full"
        return self._pieces.more(token)

    def _run(self) -> Array | None:
        """One run over tokens that the cache does not hold yet. The logits of the token behind all that are
        known, once it holds these."""
        _, logits = self.session.advance(self._known[self.session.position :])
        self.runs += 1
        return logits if self.session.position == len(self._known) else None

# --- tokens as text


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
