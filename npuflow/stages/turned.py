"""Weights rounded layer after layer at the widths that a search has chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace

from npuflow.flow.stage import Items, stage
from npuflow.hw.target import Numerics
from npuflow.quantise.config import Quantize
from npuflow.stages._in_turn import rounded_in_turn, waits
from npuflow.stages.masks import Masks
from npuflow.stages.moments import LayerMoments
from npuflow.stages.parse import Parsed
from npuflow.stages.precision import Precision
from npuflow.stages.rounded import Rounded
from npuflow.stages.samples import Sample
from npuflow.tune.correct.config import Correct
from npuflow.tune.precision.config import Probing
from npuflow.tune.rounding.config import CandidateWidths, Counting, RoundTable


@dataclass(frozen=True)
class Turned(Rounded):
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
    precision: Precision,
    rounded: Rounded,
    moments: Items[LayerMoments],
    graph: Parsed,
    samples: Items[Sample],
    table: RoundTable,
    counting: Counting,
    correct: Correct,
    probing: Probing,
    quantize: Quantize,
    numerics: Numerics,
    masks: Masks | None,
) -> Turned:
    """Go through the network once. The search has judged weights that were rounded at once, as their noise
    adds up; what is rounded in turn makes up for some of it."""
    scheme = replace(quantize, overrides=(*precision.overrides, *quantize.overrides))
    made = rounded_in_turn(
        rounded, moments, graph, samples, table, counting, correct, probing, scheme, numerics, masks
    )
    return Turned(made.weights, made.trials)
