"""The candidate as stages take it: the small artifacts and tables that fix a quantised network, as one
parameter. Each keeps its own part of a stage's key."""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.flow.stage import View
from npuflow.hw.target import Numerics
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Quantize
from npuflow.run.fixed_outputs import with_fixed_outputs
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.rounded import Rounded
from npuflow.stages.thresholds import Thresholds
from npuflow.tune.precision.fakequant import FakeQuantNetwork


@dataclass(frozen=True)
class PlacedNetwork(View):
    """The float network, where its nodes run, and the recipe's widths."""

    graph: Parsed
    placement: Placement
    quantize: Quantize
    numerics: Numerics

    @property
    def candidate(self) -> Candidate:
        """Without ranges."""
        graph, placed = self.graph.graph, self.placement.placed
        return Candidate(graph, placed, self.quantize, self.numerics, stated=self.graph.stated)


@dataclass(frozen=True)
class RecipeCandidate(View):
    """With ranges and rounded weights, at the recipe's widths."""

    placed: PlacedNetwork
    thresholds: Thresholds
    rounded: Rounded | None

    def fake_quantised(self) -> FakeQuantNetwork:
        """For fake quantisation, with outputs that can be judged."""
        plain, known = self.placed.candidate, self.thresholds
        stated, weights = {**plain.stated, **known.codes}, (self.rounded or Rounded()).weights
        graph = with_fixed_outputs(plain.graph)
        candidate = plain.with_(graph=graph, ranges=known.ranges, stated=stated, weights=weights)
        return FakeQuantNetwork(candidate, self.placed.graph.rounded)
