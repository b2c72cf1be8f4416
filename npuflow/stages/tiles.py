"""The best tiling of one layer by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from npuflow.engine.schedule.machine import Machine
from npuflow.engine.search.packed import packed, unpacked
from npuflow.engine.search.parts import solved
from npuflow.engine.search.tilings import Solution
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, stage
from npuflow.hw.target import Compute, Dma, Memory, Numerics
from npuflow.stages.layers import Effort, Sketch


@dataclass(frozen=True)
class Tile(Artifact):
    """Under the key of its layer; None: no tile fits local memory."""

    key: str
    solution: Solution | None

    def save(self, folder: Writer) -> None:
        folder.json("tile", {"key": self.key, "solution": packed(self.solution)})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        found = folder.json("tile")
        return cls(found["key"], unpacked(Solution, found["solution"]))

    def summary(self) -> dict[str, Any]:
        return {"cycles": round(self.solution.costs.cycles) if self.solution is not None else None}


@stage(over="layers", batch=16, minor=True)
def tiles(
    layers: Items[Sketch], effort: Effort, compute: Compute, memory: Memory, dma: Dma,
    numerics: Numerics,
) -> Iterator[tuple[str, Tile]]:
    """Try all sizes, orders and slots of a level, by estimated cycles."""
    for name, sketch in layers.items():
        machine = Machine(compute, memory, dma, sketch.inside)
        yield name, Tile(sketch.excerpt.key, solved(sketch.excerpt, machine, numerics, effort.level))
