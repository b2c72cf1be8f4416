"""Rings: states that keep the newest rows of a sequence alone, each where a later one takes its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Ring:
    """States of `rows` rows, where number p lies in row p mod `rows`. `index`: the input that says how many
    rows came before a run; a query attends to its own row and those before it, `window` together; `most`:
    rows of the longest sequence."""

    index: str
    rows: int
    window: int
    most: int

    def earliest(self, count: int) -> int:
        """Where a run may begin at the earliest behind `count` rows: all that its first query attends to are
        held from there on. 0 where none was replaced yet."""
        return max(0, count - (self.rows - self.window + 1)) if count > self.rows else 0

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Self:
        """As `asdict` gives it, and JSON holds it."""
        return cls(str(said["index"]), *(int(said[name]) for name in ("rows", "window", "most")))


def told(rings: tuple[Ring, ...]) -> list[dict[str, Any]]:
    """As JSON holds them."""
    return [asdict(one) for one in rings]
