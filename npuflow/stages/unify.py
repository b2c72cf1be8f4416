"""Thresholds with one range for what an addition reads, where held-out samples say that it helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from npuflow.base.wording import counted
from npuflow.calibrators import CALIBRATORS
from npuflow.flow.stage import log, stage
from npuflow.ir.graph import Graph
from npuflow.quantise.graph import build
from npuflow.run.fixed_outputs import with_fixed_outputs
from npuflow.stages._calibration import TuningSamples
from npuflow.stages._candidates import RecipeCandidate
from npuflow.stages._reference import reference_of
from npuflow.stages.thresholds import Thresholds
from npuflow.tune.correct.assess import observed_ranges
from npuflow.tune.correct.config import Unify
from npuflow.tune.correct.error import outputs_of
from npuflow.tune.correct.unify import partners, union
from npuflow.tune.correct.unify import unify as tried
from npuflow.tune.ranges.thresholds import Calibrate


@stage(
    refines="thresholds",
    when="unify",
    after=("clipping", "ranges", "search", "tune"),
    cpu="native",
    memory="1GB",
    floats=True,
    lighter="[unify] samples = 16",
)
def unify(
    recipe: RecipeCandidate,
    samples: TuningSamples,
    calibrate: Calibrate,
    unify: Unify,
) -> Thresholds:
    """Try one addition after the other. Ranges for the trials come from samples that do not judge."""
    graph, thresholds = recipe.placed.graph, recipe.thresholds
    plain = recipe.with_thresholds(thresholds)
    source, on_npu, stated = plain.graph, plain.placed.on_npu, plain.stated
    free = {
        name: span
        for name, span in thresholds.ranges.items()
        if name not in stated and name in thresholds.chosen
    }
    pairs = partners(source, on_npu, free)
    fit, held = samples.feeds(source, unify.samples, unify.held_out)
    if not pairs or not held or unify.scales == "off":
        why = (
            "it is off, or there is one sample"
            if pairs
            else "no operator adds values whose ranges may change"
        )
        log(f"nothing to unify: {why}")
        return thresholds
    own = observed_ranges(source, on_npu, fit, calibrate, plain.scheme, plain.numerics)
    ranges = {**thresholds.ranges, **{n: own[n] for n in free if thresholds.methods[n] in CALIBRATORS}}

    def made(changed: Mapping[str, tuple[float, float]]) -> Graph:
        return build(plain.with_(ranges=changed)).graph

    truth = outputs_of(with_fixed_outputs(reference_of(graph)), held)
    done = tried(pairs, ranges, made, truth, held, judge=unify.scales == "auto")
    log(f"ranges from {counted(len(fit), 'sample')}, judged on {len(held)} others")
    for trial in done.trials:
        log(trial.line())
    found, methods = dict(thresholds.ranges), dict(thresholds.methods)
    for ids in done.sets:
        found.update(dict.fromkeys(ids, union(found, ids)))
        methods.update(dict.fromkeys(ids, "unify"))
    return replace(thresholds, ranges=found, methods=methods, trials=(*thresholds.trials, *done.trials))
