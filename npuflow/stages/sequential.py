"""Weights rounded layer after layer, each by what the rounded layers before it make,
where [round] says so."""

from __future__ import annotations

from npuflow.flow.stage import Items, log, stage
from npuflow.hw.target import Numerics
from npuflow.quantise.config import Quantize
from npuflow.stages._in_turn import rounded_in_turn, waits
from npuflow.stages.masks import Masks
from npuflow.stages.moments import LayerMoments
from npuflow.stages.parse import Parsed
from npuflow.stages.rounded import Rounded
from npuflow.stages.samples import Sample
from npuflow.tune.correct.config import Correct
from npuflow.tune.precision.config import Probing
from npuflow.tune.rounding.config import CandidateWidths, Counting, RoundTable


def asked(table: RoundTable) -> bool:
    """Whether the recipe asks for it."""
    return bool(table.modes & {"sequential", "blocks", "distilled"})


@stage(
    refines="rounded",
    wanted=asked,
    cpu="native",
    memory="2GB",
    floats=True,
    lighter="[moments] samples = 64",
)
def sequential(
    rounded: Rounded,
    moments: Items[LayerMoments],
    graph: Parsed,
    samples: Items[Sample],
    table: RoundTable,
    candidates: CandidateWidths,
    counting: Counting,
    correct: Correct,
    probing: Probing,
    quantize: Quantize,
    numerics: Numerics,
    masks: Masks | None,
) -> Rounded:
    """Go through the network once, at the recipe's widths."""
    if not asked(table):
        return rounded
    if waits(table, candidates):
        log("the search sees weights rounded at once; they are rounded in turn at the widths that it chooses")
        return rounded
    return rounded_in_turn(
        rounded, moments, graph, samples, table, counting, correct, probing, quantize, numerics, masks
    )
