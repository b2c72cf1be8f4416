"""The layers that may run together from each layer on, by structure alone: what
groups are costed, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from npuflow.engine.schedule.frame import Topology
from npuflow.engine.schedule.machine import Machine
from npuflow.engine.search import spans as spanning
from npuflow.engine.search.parts import Planner
from npuflow.engine.search.plan import FUSING, fits_shared, levels
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, log, stage
from npuflow.hw.target import Compute, Dma, Memory, Numerics
from npuflow.ir.persist import operators
from npuflow.stages.layers import Effort
from npuflow.stages.quantize import Quantized
from npuflow.stages.tiles import Tile


@dataclass(frozen=True)
class Span(Artifact):
    """Consecutive parts with their own tilings."""

    content: spanning.Span

    def save(self, folder: Writer) -> None:
        folder.json("span", self.content.to_json())

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(spanning.Span.from_json(folder.json("span")))

    def uses(self) -> dict[str, tuple[str, ...]]:
        return {"ops": operators(self.content.excerpt.graph)}

    def summary(self) -> dict[str, Any]:
        return {"parts": len(self.content.alone)}


@stage(minor=True)
def spans(
    quantized: Quantized, tiles: Items[Tile], effort: Effort, compute: Compute,
    memory: Memory, dma: Dma, numerics: Numerics,
) -> Iterator[tuple[str, Span]]:
    """From each part of the network the longest run that a group may hold; equal runs
    once, named by their content."""
    if effort.level < FUSING:
        return
    graph = quantized.graph
    machine = Machine(compute, memory, dma, fits_shared(graph, memory))
    planner = Planner(
        graph, machine, numerics, effort.level, {one.key: one.solution for one in tiles.values()}
    )
    parts = planner.groups()
    if planner.faults:
        return                              # `tiling` refuses the network, with all that does not fit
    topology = Topology(graph, machine, numerics)
    every = [
        found[0] for level in levels(effort.level) for start in range(len(parts))
        if (found := spanning.span_at(topology, parts, start, level)) is not None
    ]
    different = {one.name: one for one in every}
    log(
        f"fusion groups can start at {len(every)} layers; {len(different)} different runs of layers follow "
        "these"
    )
    for name, one in different.items():
        yield name, Span(one)
