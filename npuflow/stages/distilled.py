"""Rounded weights trained together to give what the float network gives, where [round] says so."""

from __future__ import annotations

from npuflow.base.errors import RecipeError
from npuflow.base.extras import needs
from npuflow.flow.stage import log, progress, stage
from npuflow.quantise.config import Quantize
from npuflow.stages._in_turn import RoundingProblem
from npuflow.stages.rounded import Rounded
from npuflow.tune.rounding.config import RoundTable
from npuflow.tune.rounding.distillation import Distillation
from npuflow.tune.rounding.rounded import RoundingScheme
from npuflow.tune.rounding.weights import closer, to_nearest


def asked(table: RoundTable) -> bool:
    """Whether the recipe asks for it."""
    return "distilled" in table.modes


@stage(
    refines="rounded", wanted=asked, after=("sequential", "blocks"), cpu="native", memory="4GB", floats=True,
    lighter="[distillation] batch = 2",
)
def distilled(
    rounded: Rounded, problem: RoundingProblem, training: Distillation, quantize: Quantize
) -> Rounded:
    """Kept where the network's outputs on held-out samples come closer. Layers that no method has rounded
    start from the nearest codes."""
    table, moments, numerics = problem.table, problem.moments, problem.numerics
    if not asked(table) or not moments:
        return rounded
    with needs(
        '[round] mode = "distilled" needs the package torch',
        kind=RecipeError,
        hint="pip install 'npuflow[torch]'; mode = \"blocks\" works without it",
        code="NF-RECIPE-122",
    ):
        from npuflow.tune.rounding.distilled import distilled as trained
    source = problem.graph.graph
    judge = problem.seen.judge(source)
    scheme, start, sources = RoundingScheme(table, quantize, numerics), {}, {}
    for one in moments.values():
        layer, own = one.layer, one.matrix
        if layer.weight in rounded.weights:
            start[layer.weight] = rounded.weights[layer.weight]
        if table.mode_of(own.names, own.kind) != "distilled":
            continue
        sources[layer.weight] = own
        if layer.weight not in start:
            quant = scheme.of(own).type(own, own.tensor)
            start[layer.weight] = to_nearest(source, layer.weight, quant, layer.bias, None)
    made = trained(judge, sources, start, training, numerics.power_of_two, progress, problem.kept)
    found = {**start, **made}
    whole = closer("distilled", judge, start, found)
    log(whole.line())
    return Rounded({**rounded.weights, **found} if whole.kept else rounded.weights, (*rounded.trials, whole))
