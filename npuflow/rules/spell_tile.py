"""Tile as an Expand of a view in which every repeated dimension has one of size 1 before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts

_RANK = 6                                 # dimensions of a copy


@RULES.entry
class SpellTile(Decomposition):
    """In several steps where one copy would have too many dimensions."""

    triggers = ("host:tile",)
    makes = ("reshape", "expand")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        repeats = parts.number(1)
        if repeats is None:
            return "the repeats are not a constant"
        counts = [int(r) for r in repeats.reshape(-1)]
        if min(counts, default=1) < 1:
            return "a repetition of 0"
        x = parts.input(0)
        for axes in _together(counts):
            x = _repeated(parts, x, {axis: counts[axis] for axis in axes})
        return (x,)


def _together(counts: Sequence[int]) -> list[list[int]]:
    """The axes that repeat, in sets of which each is one copy of no more than _RANK dimensions."""
    repeats, more = [axis for axis, r in enumerate(counts) if r > 1], max(_RANK - len(counts), 1)
    return [repeats[i : i + more] for i in range(0, len(repeats), more)]


def _repeated(parts: Parts, x: str, counts: Mapping[int, int]) -> str:
    sizes = [(counts.get(axis, 1), size) for axis, size in enumerate(parts.shape(x))]
    narrow = [part for r, size in sizes for part in ((1, size) if r > 1 else (size,))]
    wide = [part for r, size in sizes for part in ((r, size) if r > 1 else (size,))]
    return parts.reshape(parts.expand(parts.reshape(x, narrow), wide), [r * size for r, size in sizes])
