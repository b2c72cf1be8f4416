"""Clipping ranges of the default method: extrema, or by need a method that held-out samples clearly prefer.
Outputs are never clipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from npuflow.calibrators.auto import Auto
from npuflow.flow.stage import log, stage
from npuflow.ir.graph import Graph
from npuflow.stages._calibration import ROOM, CalibrationData
from npuflow.stages._candidates import RecipeCandidate
from npuflow.stages.thresholds import Thresholds
from npuflow.tune.precision.clipping import Clipped
from npuflow.tune.precision.config import BudgetTable
from npuflow.tune.precision.fakequant import Ranges
from npuflow.tune.precision.feedback import budget_of
from npuflow.tune.precision.masks import Range, masked
from npuflow.tune.precision.named import automatic
from npuflow.tune.ranges.thresholds import choices

USED = 64                                 # calibration samples that are looked at, the held-out ones included


@stage(
    refines="thresholds", after=("box_codes", "pixel_codes"), always=True, cpu="native", memory="1GB",
    floats=True,
    minor=True,
)
def clipping(candidate: RecipeCandidate, data: CalibrationData, wanted: BudgetTable) -> Thresholds:
    """Where extrema miss the budget of [precision], rate the methods that [calibrate.auto] names by the
    network's outputs. Ranges that the recipe states stay, and a method that it names is obeyed; the table's
    exceptions may name "auto" for some tensors alone."""
    thresholds, calibrate, statistics = candidate.thresholds, data.calibrate, data.statistics
    auto = calibrate.options if isinstance(calibrate.options, Auto) else Auto()
    if "auto" not in thresholds.methods.values():
        return thresholds
    if data.is_random:
        log("the samples are noise: the extrema are used")
        return thresholds
    placed, network = candidate.placed, candidate.fake_quantised()
    graph, quantize, numerics = placed.graph, placed.quantize, placed.numerics
    ready = data.harness(network, thresholds.chosen, USED, auto.samples)
    if not ready.judge.held or not network.groups:
        log("one sample cannot both give ranges and judge them: the extrema are used")
        return thresholds
    free = {
        name: one.grid
        for name, one in choices(graph.graph, statistics.content, calibrate, quantize, numerics, []).items()
        if thresholds.methods.get(name) == "auto" and name not in thresholds.codes
    }
    masks = masked(graph.graph, statistics.content)
    for name, (low, high) in masks.items():
        log(f"{name} holds an additive mask: clipped to {low:.4g} .. {high:.4g}")
    budget = budget_of(wanted, network.graph)
    done = automatic(ready, statistics.content, calibrate, masks, auto, free, budget)
    if len(done.rated) == 1:
        log("the extrema hold the budget: nothing is clipped")
    for method, level in done.rated.items():
        log(f"{method}: {level:.2f} dB")
    log(f"taken: {done.taken:.2f} dB, on {len(ready.judge.held)} held-out samples")
    found = done.ranges if not placed.graph.massive else reaching(graph.graph, done, masks)
    ranges, methods = {**thresholds.ranges, **found}, {**thresholds.methods, **done.methods}
    return replace(thresholds, ranges=ranges, methods=methods)


def reaching(graph: Graph, done: Clipped, masks: Mapping[str, Range]) -> Ranges:
    """The ranges with room beyond what samples had, but for masks and what functions bound: of a first token
    that is massive there are few samples, and a row that is cut off is another token."""
    producer = graph.producer()
    bounded = {v for v, node in producer.items() if node.op.bounded is not None}
    return {
        v: (lo, hi) if v in masks or v in bounded else (min(lo, ROOM * lo), max(hi, ROOM * hi))
        for v, (lo, hi) in done.ranges.items()
    }
