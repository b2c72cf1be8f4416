"""Samples of text: windows of text files, or questions, as tokens of the model that they are for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.base.code import package_file
from npuflow.base.errors import AbsentError, DataError, suggestion
from npuflow.base.tables import Location
from npuflow.checkpoints.ports import TOKENS
from npuflow.input.data.config import Data, FoundSample
from npuflow.input.data.patterns import WILD, expand
from npuflow.input.text.model import OpenedTextModel, TextModel
from npuflow.input.text.windows import UNSCORED, in_chunks, windows
from npuflow.ir.types import Array

KIND, BUILTIN = "text", "builtin"
PLAIN, QUESTIONS = (".txt", ".md", ".rst"), ".jsonl"
"""Suffixes that are taken from a folder; a file or a pattern may name any."""
QUESTION = '{"context": "The sky is", "choices": [" blue.", " a fish."], "answer": 0}, one a line'

Choice = Callable[[dict[str, FoundSample]], dict[str, FoundSample]]


def found_text(
    data: Data, place: Location, model: TextModel | None, choose: Choice
) -> dict[str, FoundSample]:
    """The samples that `choose` takes: of windows, or of questions, whose continuations are a sample each.
    Their keys hold tokens and the files that these are of. A DataError has no key of the recipe yet."""
    if model is None:
        raise DataError("text needs a model whose tokens it becomes", code="NF-DATA-259")
    paths = text_files(place, data.builtin)
    texts = {name: read_text(path, name) for name, path in paths.items()}
    asked = {name for name, path in paths.items() if path.suffix.lower() == QUESTIONS}
    if asked and len(asked) < len(paths):
        raise DataError(
            "texts and questions are samples of different kinds", because=f"{min(asked)} holds questions",
            hint="a pattern that names one of both", code="NF-DATA-260",
        )
    opened = model.opened()
    if asked:
        found = _of_questions(texts, paths, opened, choose)
    else:
        found = choose(_of_windows(texts, paths, opened, data.window))
    return _watched(found, paths)


def _of_windows(
    texts: Mapping[str, str], paths: Mapping[str, Path], model: OpenedTextModel, window: int | None
) -> dict[str, FoundSample]:
    ids = {name: model.tokens(text, name) for name, text in texts.items()}
    return {
        one.name: FoundSample(
            tuple(paths[name] for name in one.texts), _detail(one.tokens, model.chunk),
            in_chunks(one.following(), model.chunk),
        )
        for one in windows(ids, model.window(window), model.before)
    }


def _of_questions(
    texts: Mapping[str, str], paths: Mapping[str, Path], model: OpenedTextModel, choose: Choice
) -> dict[str, FoundSample]:
    files: dict[str, Path] = {}
    known: dict[str, ChoiceQuestion] = {}
    for name, text in texts.items():
        for one in questions(name, text):
            known[one.name], files[one.name] = one, paths[name]
    if not known:
        raise DataError("the files hold no questions", because=", ".join(texts), code="NF-DATA-261")
    taken = choose({name: FoundSample((path,)) for name, path in files.items()})
    return dict(pair for name in taken for pair in _continuations(known[name], files[name], model))


def _continuations(
    one: ChoiceQuestion, file: Path, model: OpenedTextModel
) -> Iterator[tuple[str, FoundSample]]:
    for choice, text in enumerate(one.choices):
        tokens, following = one.continued(choice, model)
        about = {"question": one.name, "choice": choice, "answer": one.answer, "characters": len(text)}
        label = [{**about, "next": part} for part in in_chunks(following, model.chunk)]
        yield f"{one.name}.{choice}", FoundSample((file,), _detail(tokens, model.chunk), label)


def _detail(tokens: Any, chunk: int) -> dict[str, Any]:
    return {"kind": KIND, "tokens": in_chunks(tokens, chunk)}


def fed(detail: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays of a sample, with an axis of runs in front."""
    return {TOKENS: np.asarray(detail["tokens"], np.int64)}


def _watched(found: dict[str, FoundSample], paths: Mapping[str, Path]) -> dict[str, FoundSample]:
    """The samples, the first of them with all files that no sample is of: their change may bring others."""
    held = {path for one in found.values() for path in one.files}
    more = tuple(path for path in paths.values() if path not in held)
    first = next(iter(found))
    return {**found, first: replace(found[first], files=(*found[first].files, *more))}


# --- files


def text_files(place: Location, builtin: str) -> dict[str, Path]:
    """By name the text files of a place. `builtin`: the name of the text that stands for that word."""
    if place.text == BUILTIN:
        return {BUILTIN: builtin_text(builtin)}
    where = place.path
    if any(c in str(where) for c in WILD):
        root, files = expand(where)
        files = [file for file in files if file.is_file()]
    elif where.is_dir():
        root, files = where, sorted(f for f in where.rglob("*") if f.suffix.lower() in PLAIN and f.is_file())
    elif where.is_file():
        root, files = where.parent, [where]
    else:
        near = [p.name for p in where.parent.iterdir()] if where.parent.is_dir() else []
        raise AbsentError(
            f'no text at "{place.text}"', because=f"looked at {where}",
            hint=suggestion(where.name, near) or f'a path relative to the recipe, or "{BUILTIN}"',
            code="NF-DATA-262",
        )
    if not files:
        raise AbsentError(
            f'no text at "{place.text}"', because=f"nothing below {root} is called so",
            hint=f"files that end in {', '.join(PLAIN)}, or a pattern", code="NF-DATA-262",
        )
    return {file.relative_to(root).as_posix(): file for file in files}


def read_text(path: Path, name: str) -> str:
    """A file of UTF-8 as it is. DataError for another encoding, and for one without text."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise DataError(
            f'"{name}" is no text in UTF-8',
            because=f"byte {fault.start} is 0x{fault.object[fault.start]:02x}",
            hint=f"convert it: iconv -f latin1 -t utf-8 {path.name}", code="NF-DATA-263",
        ) from None
    except OSError as fault:
        raise DataError(f'the text "{name}" cannot be read', because=str(fault), code="NF-DATA-264") from None
    if not text.strip():
        raise DataError(f'"{name}" is empty', hint="a file with text, or leave it out", code="NF-DATA-265")
    return text


def builtin_text(name: str) -> Path:
    """The file of a text: "calibration.txt" or "evaluation.txt". Its bytes are part of the keys."""
    texts = {
        "calibration.txt": package_file("texts/calibration.txt"),
        "evaluation.txt": package_file("texts/evaluation.txt"),
    }
    return texts[name]


# --- questions


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
    return DataError(f"{where} is no question", because=because, hint=QUESTION, code="NF-DATA-258")
