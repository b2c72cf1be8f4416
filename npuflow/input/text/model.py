"""The language model whose tokens texts become: its tokenizer, and the sizes of its program."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from npuflow.base.errors import DataError
from npuflow.base.tables import Config, FilePath, MayBeFolder
from npuflow.checkpoints import Checkpoint, files
from npuflow.checkpoints.ports import CHUNK, CONTEXT, TOKENS
from npuflow.checkpoints.tokenizer import CheckpointTokenizer, tokenizer
from npuflow.frontends import FRONTENDS, Gatherer, Outlined, main_files
from npuflow.input.text.windows import whole_chunks

USUAL = 256
"""Tokens of a window where the recipe gives none."""


@dataclass(frozen=True)
class TextModel(Config, table="model"):
    """What of [model] says how text becomes tokens."""

    path: Annotated[FilePath, MayBeFolder(main_files)]
    dims: dict[str, int | str] = field(default_factory=dict)
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    shapes: tuple[dict[str, int | tuple[int, ...]], ...] = ()

    def opened(self) -> OpenedTextModel:
        """Its tokenizer and sizes. DataError for a model that is no checkpoint; ModelError where it has no
        tokenizer that can be read."""
        path, first = self.path.path, self.shapes[0] if self.shapes else {}      # samples are of the first
        sizes = {n: size for n, size in {**self.dims, **first}.items() if isinstance(size, int)}
        stated = first.get(TOKENS, self.inputs.get(TOKENS, ()))
        if isinstance(stated, tuple) and len(stated) == 2:
            sizes.setdefault(CHUNK, stated[1])
        if self.path.function or _reader(path) is None:
            raise DataError(
                f'"{self.path.text}" has no tokenizer that makes tokens of text',
                because="text is for language models, read from a checkpoint",
                hint='[model] path = "MODEL.gguf", or a folder with config.json and tokenizer.json; for '
                'other models, tokens from a function: source = "python:FILE.py:FUNCTION"',
                code="NF-DATA-250",
            )
        stamps = tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files(path))
        return _opened(path, stamps, tuple(sorted(sizes.items())))


@dataclass(frozen=True, eq=False)
class OpenedTextModel:
    """`chunk`: tokens of a run; `context`: tokens that the cache holds; `vocabulary`: tokens that the network
    knows."""

    tokenizer: CheckpointTokenizer
    chunk: int
    context: int
    vocabulary: int

    @property
    def before(self) -> tuple[int, ...]:
        """The tokens that begin a text, as the checkpoint has it."""
        return tuple(self.tokenizer.parts.before)

    def tokens(self, text: str, where: str) -> tuple[int, ...]:
        """Of a text, without what begins one. DataError for a token that the network does not know."""
        found = _encoded(self.tokenizer, text)
        if found and max(found) >= self.vocabulary:
            raise DataError(
                f"the tokenizer makes the token {max(found):,} of {where}",
                because=f"the network knows {self.vocabulary:,} tokens",
                hint="the tokenizer of this very checkpoint", code="NF-DATA-251",
            )
        return found

    def window(self, wanted: int | None) -> int:
        """Tokens of a window: whole chunks that the cache holds. DataError for one that is stated and is not.
        """
        if wanted is None:
            return whole_chunks(min(USUAL, self.context), self.chunk)
        if wanted > self.context:
            raise DataError(
                f"a window of {wanted:,} tokens does not fit the cache",
                because=f"it holds {self.context:,}",
                hint=f"window = {self.context}, or [model] dims = {{ context = {wanted} }}",
                code="NF-DATA-252",
            )
        if wanted % self.chunk:
            raise DataError(
                f"a window of {wanted:,} tokens is not made of whole chunks",
                because=f"a run takes {self.chunk:,} tokens",
                hint=f"window = {whole_chunks(wanted, self.chunk)}", code="NF-DATA-253",
            )
        return wanted


def _reader(path: Path) -> Gatherer | None:
    """The front end of checkpoints, where it reads such a file."""
    for name in FRONTENDS.names():
        one: Gatherer = FRONTENDS[name]()
        if path.suffix.lower() in one.suffixes and isinstance(one, Outlined):
            return one
    return None


@lru_cache(maxsize=1 << 12)
def _encoded(tokenizer: CheckpointTokenizer, text: str) -> tuple[int, ...]:
    """Tokens of a text: several steps of a build list the same ones."""
    return tuple(tokenizer.encode(text, begin=False))


@lru_cache(maxsize=4)
def _opened(
    path: Path, stamps: tuple[tuple[int, int], ...], sizes: tuple[tuple[str, int], ...]
) -> OpenedTextModel:
    """`stamps`: of the checkpoint's files, so that a changed one is read again."""
    reader = _reader(path)
    source = reader.gather(path) if reader is not None else None
    assert isinstance(reader, Outlined) and source is not None and isinstance(source.content, Checkpoint)
    told = reader.outline(source, dict(sizes))
    return OpenedTextModel(
        tokenizer(source.content), told.inputs[TOKENS].shape[1], told.sizes[CONTEXT],
        next(iter(told.outputs.values())).shape[-1],
    )
