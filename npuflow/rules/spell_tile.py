"""Tile as an Expand of a view in which every repeated dimension has one of size 1 before it."""

from __future__ import annotations

from npuflow.rules import RULES
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellTile(Decomposition):
    triggers = ("host:tile",)
    makes = ("reshape", "expand")

    def spelled(self, parts: Parts) -> tuple[str, ...] | str:
        repeats = parts.number(1)
        if repeats is None:
            return "the repeats are not a constant"
        shape = parts.shape(parts.input(0))
        counts = [int(r) for r in repeats.reshape(-1)]
        if min(counts, default=1) < 1:
            return "a repetition of 0"
        narrow = [
            part for size, r in zip(shape, counts, strict=True) for part in ((1, size) if r > 1 else (size,))
        ]
        wide = [
            part for size, r in zip(shape, counts, strict=True) for part in ((r, size) if r > 1 else (size,))
        ]
        y = parts.expand(parts.reshape(parts.input(0), narrow), wide)
        return (parts.reshape(y, [size * r for size, r in zip(shape, counts, strict=True)]),)
