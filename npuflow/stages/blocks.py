"""Rounded weights refined block by block, with images, where [round] says so."""

from __future__ import annotations

from npuflow.flow.stage import log, progress, stage
from npuflow.stages._in_turn import RoundingProblem
from npuflow.stages.rounded import Rounded
from npuflow.tune.correct.error import output_error, outputs_of
from npuflow.tune.correct.trial import NETWORK, Trial
from npuflow.tune.rounding.config import RoundTable
from npuflow.tune.rounding.judge import with_weights
from npuflow.tune.rounding.reconstruct import Descent, reconstructed
from npuflow.tune.rounding.rounded import own_zeros


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
    fit, held = problem.seen.feeds(source)
    every = [(one.layer, one.matrix) for one in problem.moments.values()]
    layers = [pair for pair in every if table.mode_of(pair[1].names, pair[1].kind) == "blocks"]
    kept = {name: one.keep for name, one in problem.kept.items()}
    for one, own in every:
        zeros = own_zeros(own.rows(own.tensor), problem.numerics)
        if zeros is not None:
            kept.setdefault(one.weight, zeros.keep)
    start = {one.weight: rounded.weights[one.weight] for one, _ in every if one.weight in rounded.weights}
    found, trials = reconstructed(source, layers, start, fit, held, descending, progress, kept)
    truth = outputs_of(source, held)
    before, after = (output_error(truth, outputs_of(with_weights(source, w), held)) for w in (start, found))
    whole = Trial("blocks", NETWORK, before, after, after < before)
    for trial in (*trials, whole):
        log(trial.line())
    weights = {**rounded.weights, **found} if whole.kept else rounded.weights
    return Rounded(weights, (*rounded.trials, *trials, whole))
