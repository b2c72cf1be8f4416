"""Clipping ranges of the default method: the best of several by held-out samples, outputs never clipped."""

from __future__ import annotations

from dataclasses import replace

from npuflow.calibrators.auto import Auto
from npuflow.flow.stage import Items, log, stage
from npuflow.hw.target import Numerics
from npuflow.quantise.config import Quantize
from npuflow.stages._held_out import is_random, network_of, rig
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.rounded import Rounded
from npuflow.stages.samples import Sample
from npuflow.stages.statistics import Statistics
from npuflow.stages.thresholds import Thresholds
from npuflow.tune.precision.masks import masked
from npuflow.tune.precision.named import automatic
from npuflow.tune.ranges.thresholds import Calibrate, choices

USED = 64                                 # calibration samples that are looked at, the held-out ones included


@stage(
    refines="thresholds", after=("box_codes", "pixel_codes"), always=True, cpu="native", memory="1GB",
    floats=True,
    minor=True,
)
def clipping(
    thresholds: Thresholds,
    graph: Parsed,
    placement: Placement,
    statistics: Statistics,
    rounded: Rounded | None,
    samples: Items[Sample],
    calibrate: Calibrate,
    quantize: Quantize,
    numerics: Numerics,
) -> Thresholds:
    """Rate the methods that [calibrate.auto] names by the network's outputs. Ranges that the
    recipe states stay, and a method that it names is obeyed; the table's exceptions may name
    "auto" for some tensors alone."""
    auto = calibrate.options if isinstance(calibrate.options, Auto) else Auto()
    if "auto" not in thresholds.methods.values():
        return thresholds
    if is_random(samples):
        log("the samples are noise: the extrema are used")
        return thresholds
    network = network_of(graph, placement, thresholds, rounded, quantize, numerics)
    ready = rig(graph, network, thresholds, statistics.content, calibrate, samples, USED, auto.samples)
    if not ready.held or not network.groups:
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
    done = automatic(ready, statistics.content, calibrate, quantize, masks, auto.methods, free, auto.samples)
    for method, level in done.rated.items():
        log(f"{method}: {level:.2f} dB")
    log(f"taken: {done.taken:.2f} dB, on {len(ready.held)} held-out samples")
    ranges, methods = {**thresholds.ranges, **done.ranges}, {**thresholds.methods, **done.methods}
    return replace(thresholds, ranges=ranges, methods=methods)
