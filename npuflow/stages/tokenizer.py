"""The tokenizer of a checkpoint in a file beside the program, which makes text without the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Self

from npuflow.base.errors import ModelError
from npuflow.checkpoints import files as files_of
from npuflow.checkpoints import is_checkpoint, opened
from npuflow.checkpoints.tokenizer import FILE, stored
from npuflow.checkpoints.tokenizer import tokenizer as tokenizer_of
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import log, stage
from npuflow.stages.model import ModelTable

LIBRARY = "tokenizers"


@dataclass(frozen=True)
class TokenizerFile(Artifact):
    """`text`: of the file; empty where the checkpoint has no tokenizer that can be read."""

    text: str

    def save(self, folder: Writer) -> None:
        folder.text(FILE, self.text)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(folder.text(FILE))

    def products(self) -> dict[str, str]:
        return {"tokenizer": FILE} if self.text else {}

    def summary(self) -> dict[str, Any]:
        return {"bytes": len(self.text.encode())}


def listing(model: ModelTable) -> Listing:
    """The model's files, and whether there is a library that reads tokenizers."""
    return {"model": Item(files_of(model.path.path), {LIBRARY: find_spec(LIBRARY) is not None})}


def other_model(model: ModelTable) -> str:
    """Why there is no tokenizer."""
    plain = not model.path.function and is_checkpoint(model.path.path)
    return "" if plain else "the model is no checkpoint of a language model"


@stage(files=listing, unless=other_model, minor=True)
def tokenizer(files: Files) -> TokenizerFile:
    """Store it. A checkpoint without one is no error here: its program makes tokens all the same."""
    try:
        return TokenizerFile(stored(tokenizer_of(opened(files["model"].files[0]))))
    except ModelError as fault:
        log(f"no tokenizer is stored: {fault.message}")
        return TokenizerFile("")
