"""The tokenizer of a checkpoint, by the library `tokenizers`, and its template of conversations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NoReturn

from npuflow.base.errors import ModelError
from npuflow.base.extras import needs
from npuflow.checkpoints.checkpoint import Checkpoint
from npuflow.checkpoints.tokenizer import from_folder, from_gguf
from npuflow.checkpoints.tokenizer.parts import TokenizerParts


@dataclass(frozen=True, eq=False)
class CheckpointTokenizer:
    """`encoder`: a `tokenizers.Tokenizer`; `stops`: tokens that end an answer; `file`: where it stands."""

    encoder: Any
    parts: TokenizerParts
    file: str

    @property
    def tokens(self) -> int:
        """How many there are, added ones too."""
        return int(self.encoder.get_vocab_size())

    @property
    def stops(self) -> tuple[int, ...]:
        return self.parts.stops

    def encode(self, text: str, begin: bool = True) -> list[int]:
        """Numbers of tokens. `begin`: with what the checkpoint puts in front of a text."""
        found: list[int] = self.encoder.encode(text, add_special_tokens=False).ids
        return [*(self.parts.before if begin else ()), *found]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of tokens; those that are no text are left out."""
        known = [i for i in map(int, ids) if 0 <= i < self.tokens]
        return str(self.encoder.decode(known, skip_special_tokens=True))

    def chat(self, messages: Sequence[Mapping[str, Any]], answer: bool = True) -> list[int]:
        """Numbers of the tokens of a conversation: messages with `role` and `content`. `answer`: up to where
        the model's next one begins."""
        return self.encode(self.chat_text(messages, answer), begin=False)

    def chat_text(self, messages: Sequence[Mapping[str, Any]], answer: bool = True) -> str:
        if not self.parts.template:
            raise ModelError(
                "the checkpoint has no template of conversations",
                because="it was trained on plain text, or the template was left out",
                hint="take the instruction-tuned version of the model, or give it plain text",
                code="NF-MODEL-465",
            ).at(file=self.file)
        return written(self.parts.template, messages, self.parts.named, answer, self.file)


def tokenizer(checkpoint: Checkpoint) -> CheckpointTokenizer:
    """Of a folder its tokenizer.json; of a GGUF file what its metadata say."""
    with needs_library():
        import tokenizers  # noqa: F401
    file = str(checkpoint.path)
    if checkpoint.form == "folder":
        return CheckpointTokenizer(*from_folder.parts(checkpoint.path), file)
    return CheckpointTokenizer(*from_gguf.parts(checkpoint.metadata, file), file)


def needs_library() -> AbstractContextManager[None]:
    """Around imports of `tokenizers`."""
    return needs(
        "tokenizers of checkpoints need the package tokenizers", kind=ModelError,
        hint="pip install 'npuflow[llm]'", code="NF-MODEL-466",
    )


# --- conversations as text, by a checkpoint's template, which runs in jinja's sandbox


class RefusedByTemplateError(Exception):
    """What a template raises by `raise_exception`."""


def refuse(message: str) -> NoReturn:
    raise RefusedByTemplateError(message)


def as_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def written(
    template: str, messages: Sequence[Mapping[str, Any]], named: Mapping[str, str], answer: bool, file: str
) -> str:
    """The text of messages. A template can read them and write text; it reaches no file and no attribute of
    Python."""
    with needs(
        "conversations need the package jinja2", kind=ModelError, hint="pip install 'npuflow[llm]'",
        code="NF-MODEL-466",
    ):
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    setting = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    setting.filters["tojson"] = as_json
    setting.globals["raise_exception"] = refuse
    try:
        return str(setting.from_string(template).render(
            messages=[dict(message) for message in messages], add_generation_prompt=answer, **named
        ))
    except Exception as fault:            # of a template anything may come
        raise ModelError(
            "the checkpoint's template does not take this conversation",
            because=f"{type(fault).__name__.removesuffix('Error')}: {fault}",
            hint='messages such as {"role": "user", "content": "..."}, users and assistants in turns',
            code="NF-MODEL-470",
        ).at(file=file) from fault
