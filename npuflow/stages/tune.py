"""Thresholds whose ranges were judged by the outputs of the layers that read them."""

from __future__ import annotations

from dataclasses import replace

from npuflow.engine.calibrate.tune import Tune, best
from npuflow.flow.stage import Items, log, stage
from npuflow.ir.contracts import CALIBRATORS
from npuflow.stages.judged import Judged
from npuflow.stages.thresholds import Thresholds


@stage(refines="thresholds", when="tune", after=("clipping", "ranges", "search"))
def tune(thresholds: Thresholds, judged: Items[Judged], tune: Tune) -> Thresholds:
    """Take each tensor's best range; of several consumers' favourites the largest. Ranges of the user's stay."""
    ranges, methods = dict(thresholds.ranges), dict(thresholds.methods)
    for name, one in judged.items():
        if len(one.losses) and name not in thresholds.codes and methods[name] in CALIBRATORS:
            ranges[name], methods[name] = one.spans[best(one.spans, one.losses)], "tune"
    log(f"{sum(m == 'tune' for m in methods.values())} of {len(ranges)} ranges tuned on {tune.samples} samples")
    return replace(thresholds, ranges=ranges, methods=methods)
