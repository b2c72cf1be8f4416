"""Thresholds whose ranges were judged by the outputs of the layers that read them,
where [tune] asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from npuflow.calibrators import CALIBRATORS, Grid
from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import Items, log, part, stage
from npuflow.hw.target import Numerics
from npuflow.quantise.config import Quantize
from npuflow.stages.fit import FitSample
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.samples import feeds
from npuflow.stages.statistics import Statistics
from npuflow.stages.thresholds import Thresholds
from npuflow.tune.precision.range_search import Tune, best, spans_to_tune
from npuflow.tune.precision.range_search import judged as judge
from npuflow.tune.ranges.thresholds import Calibrate, choices


@dataclass(frozen=True)
class Candidates(Artifact):
    """A value's ranges, the first being what its method gives, and the grid of its codes."""

    spans: tuple[tuple[float, float], ...]
    grid: Grid


@dataclass(frozen=True)
class JudgedRanges(Artifact):
    """The ranges, and [consumers, ranges]: squared error of what each consumer
    writes; no rows without consumers."""

    spans: tuple[tuple[float, float], ...]
    losses: npt.NDArray[np.float64]


@part
def candidates(
    graph: Parsed,
    statistics: Statistics,
    calibrate: Calibrate,
    quantize: Quantize,
    numerics: Numerics,
    tune: Tune,
) -> Iterator[tuple[str, Candidates]]:
    """Between the KL threshold and the extrema; tensors with one candidate alone are left out."""
    chosen = choices(graph.graph, statistics.content, calibrate, quantize, numerics, [])
    ranges = {name: one.range() for name, one in chosen.items()}
    for name, spans in spans_to_tune(chosen, ranges, tune).items():
        yield name, Candidates(tuple(spans), chosen[name].grid)


def chosen(judged: Items[JudgedRanges], thresholds: Thresholds, tune: Tune) -> Thresholds:
    """Take each tensor's best range; of several consumers' favourites the largest.
    Ranges of the user's stay."""
    ranges, methods = dict(thresholds.ranges), dict(thresholds.methods)
    for name, one in judged.items():
        if len(one.losses) and name not in thresholds.codes and methods[name] in CALIBRATORS:
            ranges[name], methods[name] = one.spans[best(one.spans, one.losses)], "tune"
    log(
        f"{sum(m == 'tune' for m in methods.values())} of {len(ranges)} ranges tuned on {tune.samples} "
        "samples"
    )
    return replace(thresholds, ranges=ranges, methods=methods)


@stage(
    refines="thresholds",
    when="tune",
    after=("clipping", "ranges", "search"),
    parts=(candidates,),
    over="candidates",
    merge=chosen,
    cpu="native",
    memory="1GB",
    batch=64,
    floats=True,
    lighter="[tune] samples = 2",
)
def tune(
    candidates: Items[Candidates],
    graph: Parsed,
    placement: Placement,
    fit: Items[FitSample],
    table: Tune,
) -> Iterator[tuple[str, JudgedRanges]]:
    """Run the layers that read each tensor with every one of its ranges, on a few samples."""
    fed = feeds(fit, graph.graph, table.samples)
    spans = {name: one.spans for name, one in candidates.items()}
    grids = {name: one.grid for name, one in candidates.items()}
    losses = judge(graph.graph, placement.placed.on_npu, spans, grids, fed)
    for name, tried in spans.items():
        yield name, JudgedRanges(tried, losses.get(name, np.zeros((0, len(tried)))))
