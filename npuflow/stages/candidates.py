"""Ranges to try for every tensor when [tune] is on, each tensor an item of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from npuflow.engine.calibrate.thresholds import Calibrate, choices
from npuflow.engine.calibrate.tune import Tune, spans_to_tune
from npuflow.engine.quantize.config import Quantize
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Uses, stage
from npuflow.hw.target import Numerics
from npuflow.ir.contracts import Grid
from npuflow.stages.parse import Parsed
from npuflow.stages.statistics import Statistics


@dataclass(frozen=True)
class Candidates(Artifact):
    """A value's ranges, the first being what its method gives, and the grid of its codes."""

    spans: tuple[tuple[float, float], ...]
    grid: Grid

    def save(self, folder: Writer) -> None:
        folder.json("spans", [list(span) for span in self.spans])
        one = self.grid
        grid = {"bits": one.bits, "signed": one.signed, "symmetric": one.symmetric}
        folder.json("grid", {**grid, "narrow": one.narrow, "power_of_two": one.power_of_two})

    @classmethod
    def load(cls, folder: Reader) -> Candidates:
        return cls(tuple((float(lo), float(hi)) for lo, hi in folder.json("spans")), Grid(**folder.json("grid")))


@stage(when="tune")
def candidates(
    graph: Annotated[Parsed, Uses()],
    statistics: Statistics,
    calibrate: Calibrate,
    quantize: Quantize,
    numerics: Numerics,
    tune: Tune,
) -> Iterator[tuple[str, Candidates]]:
    """Between the KL threshold and the extrema; tensors with one candidate alone are left out."""
    chosen = choices(graph.graph, statistics.content, calibrate, quantize, numerics, [])
    ranges = {name: one.range() for name, one in chosen.items()}
    for name, spans in spans_to_tune(chosen, ranges, tune).items():
        yield name, Candidates(tuple(spans), chosen[name].grid)
