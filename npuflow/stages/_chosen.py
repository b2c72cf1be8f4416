"""The candidate that a build has chosen, as stages take it.
It is what is quantised, and what verdict, ledger and budget ask about.
"""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.flow.stage import View
from npuflow.quantise.candidate import Candidate
from npuflow.run.fixed_outputs import with_fixed_outputs
from npuflow.stages._candidates import PlacedNetwork, TargetNetwork
from npuflow.stages.precision import Precision
from npuflow.stages.rounded import Rounded
from npuflow.stages.thresholds import Thresholds
from npuflow.stages.turned import FinalWeights
from npuflow.tune.precision.fakequant import FakeQuantNetwork


@dataclass(frozen=True)
class Choices(View):
    """Ranges, widths and codes of weights. Without calibration there are none."""

    thresholds: Thresholds | None
    precision: Precision | None
    rounded: Rounded | None
    turned: FinalWeights | None

    @property
    def codes(self) -> Rounded:
        """Weights whose codes are chosen."""
        return self.turned or self.rounded or Rounded()

    def of(self, recipe: Candidate) -> Candidate:
        """The candidate with these."""
        known, wider = self.thresholds or Thresholds({}, {}), self.precision or Precision()
        stated = {**recipe.stated, **known.codes}
        plain = recipe.with_(ranges=known.ranges, stated=stated, weights=self.codes.weights)
        return plain.with_overrides(wider.overrides).with_ranges(wider.ranges)


@dataclass(frozen=True)
class ChosenCandidate(View):
    """The network with all choices made, for a target."""

    network: TargetNetwork
    choices: Choices

    @property
    def placed(self) -> PlacedNetwork:
        return self.network.placed

    @property
    def candidate(self) -> Candidate:
        """What is built."""
        return self.choices.of(self.network.candidate)

    @property
    def codes(self) -> Rounded:
        return self.choices.codes

    def fake_quantised(self) -> FakeQuantNetwork:
        """For fake quantisation, with outputs that can be judged."""
        one = self.candidate
        return FakeQuantNetwork(
            one.with_(graph=with_fixed_outputs(one.graph)), self.placed.graph.rounded
        )
