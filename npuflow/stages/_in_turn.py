"""Rounds weights layer after layer at the widths that they have in the end.
The stage of the recipe's widths and that of widths by search share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from npuflow.flow.stage import Items, View, log, progress
from npuflow.hw.target import Numerics
from npuflow.quantise.config import Quantize, Weights
from npuflow.quantise.rounded import chosen
from npuflow.quantise.types import weight_type
from npuflow.rounders import RoundedWeight, Rounder
from npuflow.run.fixed_outputs import with_fixed_outputs
from npuflow.stages._rounding_samples import RoundingSamples
from npuflow.stages.masks import Masks
from npuflow.stages.moments import LayerMoments
from npuflow.stages.parse import Parsed
from npuflow.stages.rounded import Rounded
from npuflow.tune.correct.trial import Trial
from npuflow.tune.rounding.config import CandidateWidths, RoundTable
from npuflow.tune.rounding.judge import judged, to_nearest
from npuflow.tune.rounding.pruning import LayerMask
from npuflow.tune.rounding.rounded import Matrix
from npuflow.tune.rounding.sequential import sequential as in_turn


def waits(table: RoundTable, candidates: CandidateWidths) -> bool:
    """Whether weights are rounded in turn only when a search has chosen their widths: what a layer makes up
    for depends on the codes above it. What descends from codes of the recipe's widths does not wait."""
    descends = bool(table.modes & {"blocks", "distilled"})
    return "sequential" in table.modes and not descends and bool(candidates.weights)


@dataclass(frozen=True)
class RoundingProblem(View):
    """Whose weights are rounded, by what, and on which samples. [round] comes first: refinements of rounded
    weights are on where the recipe has it."""

    table: RoundTable
    moments: Items[LayerMoments]
    graph: Parsed
    seen: RoundingSamples
    numerics: Numerics
    masks: Masks | None

    @property
    def kept(self) -> Mapping[str, LayerMask]:
        """The masks of pruned weights."""
        return self.masks.layers if self.masks is not None else {}


def rounded_in_turn(rounded: Rounded, problem: RoundingProblem, quantize: Quantize) -> Rounded:
    """Go through the network once, at the widths of `quantize`. A method that is judged is used where the
    outputs come closer than with all layers rounded at once."""
    moments, graph, table, numerics = problem.moments, problem.graph, problem.table, problem.numerics
    if not moments:
        return rounded
    fit, held = problem.seen.feeds(graph.graph)

    def scheme(source: Matrix) -> Weights:
        return quantize.weights_of(source.names, source.kind)

    def nearest_of(name: str, source: Matrix) -> RoundedWeight:
        quant = weight_type(source.tensor, source.axis, scheme(source), numerics, source.inner)
        return to_nearest(graph.graph, name, quant, "", None)

    def rounder(source: Matrix) -> Rounder:
        return table.rounder_of(source.names, source.kind)

    layers = [(one.layer, one.matrix) for one in moments.values()]
    at_once = {
        one.weight: found
        for one, source in layers
        if (found := chosen(rounded.weights, one.weight, scheme(source), numerics)) is not None
    }
    own = [pair for pair in layers if table.mode_of(pair[1].names, pair[1].kind) != "parallel"]
    mine = {one.weight for one, _ in own}
    others = {name: one for name, one in at_once.items() if name not in mine}
    done = in_turn(
        graph.graph, own, fit, rounder, scheme, numerics, lambda at: progress(at, len(own)),
        problem.kept, others,
    )
    weights = {**others, **{name: one.weight for name, one in done.items()}}
    reported: tuple[Trial, ...] = ()
    if table.judged and weights:
        nearest = {one.weight: nearest_of(one.weight, src) for one, src in layers if one.weight in weights}
        whole = judged(with_fixed_outputs(graph.graph), weights, {**nearest, **at_once}, held)
        reported = (replace(whole, correction="sequential"),)
        weights = weights if whole.kept else at_once
        log(reported[0].line())
    rest = {name: one for name, one in rounded.weights.items() if name not in mine}
    return Rounded({**rest, **weights}, (*rounded.trials, *reported))
