"""The toy compiler's artifacts and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from npuflow.base.tables import Config
from npuflow.flow.artifact import Artifact, Reader, Writer


@dataclass(frozen=True)
class Source(Config):
    """What is listed: takes no part in an item's key."""

    folder: str = ""
    count: int = 4
    order: int = 1


@dataclass(frozen=True)
class Reading(Config):
    sleep: float = 0.0
    fail: str = ""
    leave: str = ""
    """An item over which the stage ends its process, as code does that was written for the command line."""
    hog: int = 0
    keep: int = 0
    """Bytes that the process keeps of the first item."""
    die: str = ""
    trace: str = ""
    gates: str = ""
    """A folder: from the 20th item on, a file "threads" in it is waited for, from the 60th on "processes"."""


@dataclass(frozen=True)
class Scale(Config):
    by: int = 2
    sleep: float = 0.0


@dataclass(frozen=True)
class Number(Artifact):
    value: int

    def save(self, folder: Writer) -> None:
        folder.json("number", self.value)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(folder.json("number"))


@dataclass(frozen=True)
class Scaled(Number):
    pass


@dataclass(frozen=True)
class Table(Artifact):
    """Every kind of entry that an object can hold."""

    rows: tuple[int, ...]

    def save(self, folder: Writer) -> None:
        import numpy as np

        folder.json("rows", list(self.rows))
        folder.text("notes", f"{len(self.rows)} rows")
        folder.bytes("table.bin", b"".join(row.to_bytes(8, "little", signed=True) for row in self.rows))
        folder.arrays("small", {"rows": np.array(self.rows, "<i8"), "odd/name": np.zeros(3, "<f4")})
        folder.blocks(
            "large", "<f4", (1200, 1024), (np.full((400, 1024), len(self.rows), "<f4") for _ in range(3))
        )

    @classmethod
    def load(cls, folder: Reader) -> Self:
        rows = folder.json("rows")
        if len(folder.arrays("small")["rows"]) != len(rows) or folder.array("large").shape != (1200, 1024):
            raise ValueError("the entries do not agree")
        if len(folder.bytes("table.bin")) != 8 * len(rows) or not folder.text("notes"):
            raise ValueError("the entries do not agree")
        return cls(tuple(rows))

    def products(self) -> dict[str, str]:
        return {"table": "table.bin"}

    def summary(self) -> dict[str, Any]:
        return {"rows": len(self.rows)}


@dataclass(frozen=True)
class Total(Number):
    def summary(self) -> dict[str, Any]:
        return {"total": self.value}
