"""Thresholds with one range for what an addition reads, where held-out samples say that it helps."""

from __future__ import annotations

from dataclasses import replace

from npuflow.base.wording import counted
from npuflow.calibrators import CALIBRATORS
from npuflow.flow.stage import log, stage
from npuflow.run.fixed_outputs import with_fixed_outputs
from npuflow.stages._calibration import TuningSamples
from npuflow.stages._candidates import RecipeCandidate
from npuflow.stages._reference import reference_of
from npuflow.stages.thresholds import Thresholds
from npuflow.tune.correct.assess import observed_ranges
from npuflow.tune.correct.config import Unify
from npuflow.tune.correct.unify import partners, union
from npuflow.tune.correct.unify import unify as tried
from npuflow.tune.improve import Acceptance
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
    judge = samples.judge(source, unify.samples, unify.held_out, with_fixed_outputs(reference_of(graph)))
    if not pairs or not judge.held or unify.scales == "off":
        why = (
            "it is off, or there is one sample"
            if pairs
            else "no operator adds values whose ranges may change"
        )
        log(f"nothing to unify: {why}")
        return thresholds
    own = observed_ranges(source, on_npu, judge.fit, calibrate, plain.scheme, plain.numerics)
    start = plain.with_ranges({n: own[n] for n in free if thresholds.methods[n] in CALIBRATORS})
    rule = Acceptance(asked=unify.scales == "on")
    done = tried(pairs, start, lambda one: judge.score(one).error, rule)
    log(f"ranges from {counted(len(judge.fit), 'sample')}, judged on {len(judge.held)} others")
    for trial in done.trials:
        log(trial.line())
    found, methods = dict(thresholds.ranges), dict(thresholds.methods)
    for ids in done.sets:
        found.update(dict.fromkeys(ids, union(found, ids)))
        methods.update(dict.fromkeys(ids, "unify"))
    return replace(thresholds, ranges=found, methods=methods, trials=(*thresholds.trials, *done.trials))
