"""Rounds weights layer after layer at the widths that they have in the end.
The stage of the recipe's widths and that of widths by search share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from npuflow.flow.stage import Items, View, log, progress
from npuflow.hw.target import Numerics
from npuflow.ir.sparsity import Mask
from npuflow.quantise.config import Quantize
from npuflow.quantise.rounded import chosen
from npuflow.rounders import RoundedWeight
from npuflow.run.fixed_outputs import with_fixed_outputs
from npuflow.stages._rounding_samples import RoundingSamples
from npuflow.stages.masks import Masks
from npuflow.stages.moments import LayerMoments
from npuflow.stages.parse import Parsed
from npuflow.stages.rounded import Rounded
from npuflow.tune.improve import Trial
from npuflow.tune.rounding.config import CandidateWidths, RoundTable
from npuflow.tune.rounding.pruning import LayerMask
from npuflow.tune.rounding.rounded import Matrix, RoundingScheme, own_zeros
from npuflow.tune.rounding.sequential import sequential as in_turn
from npuflow.tune.rounding.weights import closer, to_nearest


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
    def pruned(self) -> Mapping[str, LayerMask]:
        """The masks of pruned weights."""
        return self.masks.layers if self.masks is not None else {}

    @property
    def kept(self) -> Mapping[str, Mask]:
        """Of weights that stay zero in places, by pruning or because the model brings zeros along that the
        target skips, those that may be other than zero."""
        found = {name: one.keep for name, one in self.pruned.items()}
        for one in self.moments.values():
            zeros = own_zeros(one.matrix.rows(one.matrix.tensor), self.numerics)
            if zeros is not None:
                found.setdefault(one.layer.weight, zeros.keep)
        return found


def rounded_in_turn(rounded: Rounded, problem: RoundingProblem, quantize: Quantize) -> Rounded:
    """Go through the network once, at the widths of `quantize`. A method that is judged is used where the
    outputs come closer than with all layers rounded at once."""
    moments, graph, table, numerics = problem.moments, problem.graph, problem.table, problem.numerics
    if not moments:
        return rounded
    scheme, judge = RoundingScheme(table, quantize, numerics), problem.seen.judge(graph.graph)

    def nearest_of(name: str, source: Matrix) -> RoundedWeight:
        return to_nearest(graph.graph, name, scheme.of(source).type(source, source.tensor), "", None)

    layers = [(one.layer, one.matrix) for one in moments.values()]
    at_once = {
        one.weight: found
        for one, source in layers
        if (found := chosen(rounded.weights, one.weight, scheme.of(source).weights, numerics)) is not None
    }
    own = [pair for pair in layers if table.mode_of(pair[1].names, pair[1].kind) != "parallel"]
    mine = {one.weight for one, _ in own}
    others = {name: one for name, one in at_once.items() if name not in mine}
    done = in_turn(judge, own, scheme, lambda at: progress(at, len(own)), problem.pruned, others)
    weights = {**others, **{name: one.weight for name, one in done.items()}}
    reported: tuple[Trial, ...] = ()
    if table.judged and weights:
        nearest = {one.weight: nearest_of(one.weight, src) for one, src in layers if one.weight in weights}
        fixed = replace(judge, graph=with_fixed_outputs(graph.graph))
        whole = closer("sequential", fixed, {**nearest, **at_once}, weights)
        reported, weights = (whole,), weights if whole.kept else at_once
        log(whole.line())
    rest = {name: one for name, one in rounded.weights.items() if name not in mine}
    return Rounded({**rest, **weights}, (*rounded.trials, *reported))
