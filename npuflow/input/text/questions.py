"""Questions with several continuations, one of them right: lines of a .jsonl file as tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from npuflow.base.errors import DataError
from npuflow.input.text.model import OpenedTextModel
from npuflow.input.text.windows import UNSCORED

FORM = '{"context": "The sky is", "choices": [" blue.", " a fish."], "answer": 0}, one a line'


@dataclass(frozen=True)
class ChoiceQuestion:
    """`answer`: the place of the right one of `choices`, which are written as they follow the context."""

    name: str
    context: str
    choices: tuple[str, ...]
    answer: int

    def continued(self, choice: int, model: OpenedTextModel) -> tuple[list[int], list[Any]]:
        """The tokens of the context with one choice, in whole chunks, and for each what is scored behind it:
        the token that follows, where it is of the choice."""
        own = model.tokens(self.context + self.choices[choice], f'"{self.name}"')
        alone = model.tokens(self.context, f'"{self.name}"')
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(own, alone, strict=False)))
        tokens, first = [*model.before, *own], len(model.before) + shared
        if first == len(tokens):
            raise self._fault(f"choice {choice} adds no token to the context", "choices that are not empty")
        if not first:
            raise self._fault("its context has no token", "a context of one word or more")
        following = [*[UNSCORED] * (first - 1), *tokens[first:], UNSCORED]
        filled = -len(tokens) % model.chunk
        if len(tokens) + filled > model.context:
            raise DataError(
                f'"{self.name}" takes {len(tokens):,} tokens', because=f"the cache holds {model.context:,}",
                hint=f"leave it out, or [model] dims = {{ context = {len(tokens)} }}", code="NF-DATA-256",
            )
        return [*tokens, *[tokens[-1]] * filled], [*following, *[UNSCORED] * filled]

    def _fault(self, because: str, hint: str) -> DataError:
        return DataError(f'"{self.name}" asks nothing', because=because, hint=hint, code="NF-DATA-257")


def questions(name: str, text: str) -> Iterator[ChoiceQuestion]:
    """Of a .jsonl file, a question a line. DataError for a line that is none."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield _question(f"{name}#{number:05d}", f"{name}, line {number}", line)


def _question(name: str, where: str, line: str) -> ChoiceQuestion:
    try:
        held = json.loads(line)
    except json.JSONDecodeError as fault:
        raise _wrong(where, f"it is no JSON: {fault}") from None
    if not isinstance(held, dict):
        raise _wrong(where, "it is no object")
    context: Any = held.get("context")
    choices: Any = held.get("choices")
    answer: Any = held.get("answer")
    if not isinstance(context, str):
        raise _wrong(where, '"context" is no text')
    if not _texts(choices) or len(choices) < 2:
        raise _wrong(where, '"choices" is no list of two texts or more')
    if type(answer) is not int or not 0 <= answer < len(choices):
        raise _wrong(where, f'"answer" is no place in the {len(choices)} choices, counted from 0')
    return ChoiceQuestion(name, context, tuple(choices), answer)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _wrong(where: str, because: str) -> DataError:
    return DataError(f"{where} is no question", because=because, hint=FORM, code="NF-DATA-258")
