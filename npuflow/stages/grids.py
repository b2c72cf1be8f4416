"""The layers whose weights are rounded by moments, each with the power-of-two grid on which its input is counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

from npuflow.engine.quantize.config import Quantize
from npuflow.engine.rounding.config import Counting, Round, rounds
from npuflow.engine.rounding.layers import Layer, layers
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import log, stage
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.statistics import Statistics


@dataclass(frozen=True)
class Grid(Artifact):
    """One layer."""

    layer: Layer

    def save(self, folder: Writer) -> None:
        folder.json("layer", asdict(self.layer))

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(Layer(**folder.json("layer")))

    def summary(self) -> dict[str, Any]:
        return {"layer": self.layer.name}


@stage(when="round", wanted=rounds)
def grids(
    graph: Parsed,
    placement: Placement,
    statistics: Statistics,
    table: Counting,
    rounding: Round,
    quantize: Quantize,
) -> Iterator[tuple[str, Grid]]:
    """A sample beyond the next power of two makes a grid coarser, and only then what was counted on it is counted again."""
    if not rounds(quantize, rounding):
        log("all weights are rounded to the nearest")
        return
    if statistics.noise:
        log("the samples are noise: all weights are rounded to the nearest")
        return
    known = statistics.content
    ends = {name: (known[name].lo, known[name].hi) for name in known.names}
    for one in layers(graph.graph, placement.placed, table, ends, graph.stated, log):
        yield f"{one.node:04}", Grid(one)
