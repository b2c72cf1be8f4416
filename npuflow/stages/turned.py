"""Weights rounded layer after layer at the widths that a search has chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace

from npuflow.flow.stage import stage
from npuflow.quantise.config import Quantize
from npuflow.stages._in_turn import RoundingProblem, rounded_in_turn, waits
from npuflow.stages.precision import Precision
from npuflow.stages.rounded import Rounded
from npuflow.tune.rounding.config import CandidateWidths, RoundTable


@dataclass(frozen=True)
class FinalWeights(Rounded):
    """All weights as they are used."""


def needless(table: RoundTable, candidates: CandidateWidths) -> str:
    """Why widths are known before weights are rounded."""
    both = 'mode = "sequential" of [round] with [precision] weights'
    return "" if waits(table, candidates) else f"the recipe does not have {both}"


@stage(
    when="round",
    unless=needless,
    cpu="native",
    memory="2GB",
    floats=True,
    lighter="[moments] samples = 64",
)
def turned(
    precision: Precision, rounded: Rounded, problem: RoundingProblem, quantize: Quantize
) -> FinalWeights:
    """Go through the network once. The search has judged weights that were rounded at once, as their noise
    adds up; what is rounded in turn makes up for some of it."""
    scheme = replace(quantize, overrides=(*precision.overrides, *quantize.overrides))
    made = rounded_in_turn(rounded, problem, scheme)
    return FinalWeights(made.weights, made.trials)
