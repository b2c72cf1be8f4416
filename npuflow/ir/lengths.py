"""Lengths: inputs that say how many steps of a sequence a run has, in a graph of the most steps."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"(.+)<=(\d+)")


@dataclass(frozen=True)
class Length:
    """An input that says how many steps a run has, from `least` to `most`. The graph is that of the most:
    what a port has behind the last step is filling, along its axis in `axes` (by names of ports)."""

    name: str
    least: int
    most: int
    axes: tuple[tuple[str, int], ...] = ()

    @property
    def dim(self) -> str:
        """The dimension's name in the model."""
        return self.name.rpartition("<=")[0]


def length_name(dim: str, most: int) -> str:
    """What the input is called that says how long a dimension is: it tells the most, so that whoever feeds
    inputs by name and type can fill it in."""
    return f"{dim}<={most}"


def most_of(name: str) -> int:
    """The most steps that an input of this name says; 0 where it is another input."""
    found = _NAME.fullmatch(name)
    return int(found[2]) if found else 0
