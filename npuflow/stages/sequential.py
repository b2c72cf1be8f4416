"""Weights rounded layer after layer, each by what the rounded layers before it make,
where [round] says so."""

from __future__ import annotations

from npuflow.flow.stage import log, stage
from npuflow.quantise.config import Quantize
from npuflow.stages._in_turn import RoundingProblem, rounded_in_turn, waits
from npuflow.stages.rounded import Rounded
from npuflow.tune.rounding.config import CandidateWidths, RoundTable


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
    rounded: Rounded, problem: RoundingProblem, candidates: CandidateWidths, quantize: Quantize
) -> Rounded:
    """Go through the network once, at the recipe's widths."""
    if not asked(problem.table):
        return rounded
    if waits(problem.table, candidates):
        log("the search sees weights rounded at once; they are rounded in turn at the widths that it chooses")
        return rounded
    return rounded_in_turn(rounded, problem, quantize)
