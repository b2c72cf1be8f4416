"""The synthetic artifact and its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from npuflow.base.tables import Config
from npuflow.flow.artifact import Artifact, Reader, Writer


@dataclass(frozen=True)
class Source(Config):
    """How many steps; takes no part in their keys."""

    count: int = 1000


@dataclass(frozen=True)
class Work(Config):
    """How long each step keeps the interpreter busy."""

    seconds: float = 0.0


@dataclass(frozen=True)
class Value(Artifact):
    """One number."""

    value: int

    def save(self, folder: Writer) -> None:
        folder.json("value", self.value)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(folder.json("value"))


@dataclass(frozen=True)
class Batched(Value):
    """The same, from the stage that works in batches."""
