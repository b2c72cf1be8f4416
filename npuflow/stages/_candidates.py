"""The candidate as stages take it: small artifacts and tables, as one parameter.
Each keeps its own part of a stage's key.
"""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.flow.stage import View
from npuflow.hw.target import HostProcessor, Memory, Numerics, Target
from npuflow.place.islands import PlacementTable, Prices
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
    def plain(self) -> Candidate:
        """What of a candidate is known."""
        graph, placed = self.graph.graph, self.placement.placed
        return Candidate(
            graph, placed, self.quantize, self.numerics, stated=self.graph.stated,
            coded=frozenset(self.graph.pixels),
        ).with_caches(self.graph.narrow)


@dataclass(frozen=True)
class TargetNetwork(View):
    """A placed network with all that a target has a say in."""

    placed: PlacedNetwork
    memory: Memory
    host: HostProcessor
    least: PlacementTable

    @property
    def candidate(self) -> Candidate:
        """Without ranges and codes of weights."""
        prices = Prices(Target(memory=self.memory, host=self.host), self.least)
        return self.placed.plain.with_(prices=prices)


@dataclass(frozen=True)
class RecipeCandidate(View):
    """With ranges and rounded weights, at the recipe's widths."""

    network: TargetNetwork
    thresholds: Thresholds
    rounded: Rounded | None

    @property
    def placed(self) -> PlacedNetwork:
        return self.network.placed

    def with_thresholds(self, known: Thresholds) -> Candidate:
        """The candidate, were these its ranges and stated codes; with outputs that can be judged."""
        plain = self.network.candidate
        return plain.with_(
            graph=with_fixed_outputs(plain.graph), ranges=known.ranges,
            stated={**plain.stated, **known.codes}, weights=(self.rounded or Rounded()).weights,
        )

    def fake_quantised(self) -> FakeQuantNetwork:
        """For fake quantisation."""
        return FakeQuantNetwork(self.with_thresholds(self.thresholds), self.placed.graph.rounded)
