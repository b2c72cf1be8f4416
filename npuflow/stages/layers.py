"""The network's layers by structure alone, each with what may follow it point by point:
what is tiled, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Self

from npuflow.base.tables import Config, Range
from npuflow.engine.schedule.machine import Machine
from npuflow.engine.search.canonical import Excerpt
from npuflow.engine.search.parts import Planner
from npuflow.engine.search.plan import fits_shared
from npuflow.engine.search.tilings import DEFAULT_LEVEL
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import log, stage
from npuflow.hw.target import Compute, Dma, Memory, Numerics
from npuflow.ir.persist import operators
from npuflow.stages.quantize import Quantized


@dataclass(frozen=True)
class Effort(Config, table="tiling"):
    """How hard the tiling search tries."""

    level: Annotated[int, Range(0, 5)] = DEFAULT_LEVEL
    """0: every layer alone, few tile sizes; 1: point-wise layers join the layer before; 3: fusion
    groups run stripe by stripe on all cores, and tensors stay in local memory where that is faster; 5:
    longer groups, nearly all sizes."""


@dataclass(frozen=True)
class Sketch(Artifact):
    """A layer with followers. `inside`: the network's activations lie in the chip's shared memory."""

    excerpt: Excerpt
    inside: bool

    def save(self, folder: Writer) -> None:
        folder.json("excerpt", {**self.excerpt.to_json(), "inside": self.inside})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        found = folder.json("excerpt")
        return cls(Excerpt.from_json(found), found["inside"])

    def uses(self) -> dict[str, tuple[str, ...]]:
        return {"ops": operators(self.excerpt.graph)}

    def summary(self) -> dict[str, Any]:
        return {"layers": len(self.excerpt.graph.nodes)}


@stage(minor=True)
def layers(
    quantized: Quantized, effort: Effort, compute: Compute, memory: Memory, dma: Dma,
    numerics: Numerics,
) -> Iterator[tuple[str, Sketch]]:
    """Every layer and run of point-wise followers that may be tiled as one; equal ones
    once, named by their content."""
    planner = Planner(quantized.graph, Machine(compute, memory, dma), numerics, effort.level)
    found, asked = {}, 0
    for excerpt in planner.candidates():
        found[excerpt.name], asked = excerpt, asked + 1
    log(f"{asked} layers and runs of layers, {len(found)} of them different")
    inside = fits_shared(quantized.graph, memory)
    for name, excerpt in found.items():
        yield name, Sketch(excerpt, inside)
