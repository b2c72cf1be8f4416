"""What the toy stages hand to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from npuflow.base.tables import Config, Location, Range
from npuflow.flow.artifact import Artifact, Reader, Writer


@dataclass(frozen=True)
class Text(Artifact):
    words: tuple[str, ...]

    def save(self, folder: Writer) -> None:
        folder.json("words", list(self.words))

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(tuple(folder.json("words")))


@dataclass(frozen=True)
class Tally(Artifact):
    counts: dict[str, int] = field(default_factory=dict)

    def save(self, folder: Writer) -> None:
        folder.json("counts", self.counts)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(folder.json("counts"))

    def summary(self) -> dict[str, Any]:
        return {"words": sum(self.counts.values())}


@dataclass(frozen=True)
class Total(Tally):
    pass


@dataclass(frozen=True)
class Page(Artifact):
    text: str

    def save(self, folder: Writer) -> None:
        folder.text("page.txt", self.text)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(folder.text("page.txt"))

    def products(self) -> dict[str, str]:
        return {"page": "page.txt"}


@dataclass(frozen=True)
class Texts(Config):
    """The texts to count."""

    source: Location
    """A pattern of text files."""


@dataclass(frozen=True)
class Count(Config):
    """How words are counted."""

    case: Literal["keep", "fold"] = "fold"
    """Whether A and a are one word."""
    least: Annotated[int, Range(1, 99)] = 1
    """Words seen less often are left out."""


@dataclass(frozen=True)
class Page_(Config, table="page"):
    title: str = "Words"
    fail: str = ""
    """Fail with this message (to see how failures look)."""
