"""A decoded command: its opcode's name and its fields by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NONE = 0xFFFFFFFF  # an absent pointer
FieldValue = int | str | tuple[int, ...]   # a number, an enum name, or a vector


@dataclass(frozen=True)
class Command:
    """One decoded command. `wait` has one count per queue of the core, up to the last one that is not 0."""

    opcode: str
    fields: Mapping[str, FieldValue]
    queue: int = 0
    core: int = 0
    node: int = 0
    wait: tuple[int, ...] = ()
    flags: int = 0

    def number(self, name: str) -> int:
        value = self.fields[name]
        assert isinstance(value, int), f"{self.opcode}.{name} is not a number"
        return value

    def text(self, name: str) -> str:
        value = self.fields[name]
        assert isinstance(value, str), f"{self.opcode}.{name} is not an enum"
        return value

    def vector(self, name: str) -> tuple[int, ...]:
        value = self.fields[name]
        assert isinstance(value, tuple), f"{self.opcode}.{name} is not a vector"
        return value

    def pointer(self, name: str) -> int | None:
        """A pointer that may be absent."""
        value = self.number(name)
        return None if value == NONE else value
