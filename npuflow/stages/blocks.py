"""Rounded weights refined block by block, with images, where [round] says so."""

from __future__ import annotations

from npuflow.flow.stage import log, progress, stage
from npuflow.stages._in_turn import RoundingProblem
from npuflow.stages.rounded import Rounded
from npuflow.tune.rounding.config import RoundTable
from npuflow.tune.rounding.reconstruct import Descent, reconstructed
from npuflow.tune.rounding.weights import closer


def asked(table: RoundTable) -> bool:
    """Whether the recipe asks for it."""
    return "blocks" in table.modes


@stage(
    refines="rounded", wanted=asked, after=("sequential",), cpu="native", memory="2GB", floats=True,
    lighter="[moments] samples = 64",
)
def blocks(
    rounded: Rounded, problem: RoundingProblem, descending: Descent
) -> Rounded:
    """Each block is judged by its own outputs on held-out samples, all together by the network's."""
    table = problem.table
    if not asked(table) or not rounded.weights:
        return rounded
    source = problem.graph.graph
    judge = problem.seen.judge(source)
    every = [(one.layer, one.matrix) for one in problem.moments.values()]
    layers = [pair for pair in every if table.mode_of(pair[1].names, pair[1].kind) == "blocks"]
    start = {one.weight: rounded.weights[one.weight] for one, _ in every if one.weight in rounded.weights}
    found, trials = reconstructed(judge, layers, start, descending, progress, problem.kept)
    whole = closer("blocks", judge, start, found)
    for trial in (*trials, whole):
        log(trial.line())
    weights = {**rounded.weights, **found} if whole.kept else rounded.weights
    return Rounded(weights, (*rounded.trials, *trials, whole))
