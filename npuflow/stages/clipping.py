"""Clipping ranges of the default method: the best of several by held-out samples, outputs never clipped."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from npuflow.calibrators.auto import Auto
from npuflow.engine.calibrate.thresholds import Calibrate, Layer, choices
from npuflow.engine.calibrate.thresholds import thresholds as chosen_by
from npuflow.engine.precision.clipping import clip
from npuflow.engine.precision.fakequant import Network
from npuflow.engine.precision.masks import masked
from npuflow.engine.quantize.config import Quantize
from npuflow.flow.stage import Items, Uses, log, stage
from npuflow.hw.target import Numerics
from npuflow.stages._held_out import is_random, rig
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.rounded import Rounded
from npuflow.stages.samples import Sample
from npuflow.stages.statistics import Statistics
from npuflow.stages.thresholds import Thresholds

USED = 64                                 # calibration samples that are looked at, the held-out ones included


@stage(refines="thresholds", always=True, cpu="native", memory="1GB", floats=True)
def clipping(
    thresholds: Thresholds,
    graph: Annotated[Parsed, Uses("infer", "to_onnx", "role", "channel_axis", "output_range", "shares_scale", "f")],
    placement: Placement,
    statistics: Statistics,
    rounded: Rounded | None,
    samples: Items[Sample],
    calibrate: Calibrate,
    quantize: Quantize,
    numerics: Numerics,
) -> Thresholds:
    """Rate the methods that [calibrate.auto] names by the network's outputs. Ranges that the recipe states stay, and a
    method that it names is obeyed; the table's exceptions may name "auto" for some tensors alone."""
    auto = calibrate.options if isinstance(calibrate.options, Auto) else Auto()
    if "auto" not in thresholds.methods.values():
        return thresholds
    if is_random(samples):
        log("the samples are noise: the extrema stay")
        return thresholds
    stated, known = {**graph.stated, **thresholds.codes}, (rounded or Rounded()).weights
    network = Network(graph.graph, placement.placed, quantize, numerics, stated, known)
    ready = rig(graph, network, thresholds, statistics.content, calibrate, samples, USED, auto.samples)
    if not ready.held or not network.groups:
        log("one sample cannot both give ranges and judge them: the extrema stay")
        return thresholds
    free = {
        name: one.grid
        for name, one in choices(graph.graph, statistics.content, calibrate, quantize, numerics, []).items()
        if thresholds.methods.get(name) == "auto" and name not in thresholds.codes
    }
    masks = masked(graph.graph, statistics.content)
    for name, (low, high) in masks.items():
        log(f"{name} holds an additive mask: clipped to {low:.4g} .. {high:.4g}")
    tried = {}
    for method in dict.fromkeys(("minmax", *auto.methods)):
        bounds = tuple(Layer(layers=(name,), method=method, bounds=span) for name, span in masks.items())
        layers = (*bounds, *(replace(one, method=method) if one.method == "auto" else one for one in calibrate.layers))
        table = Calibrate(method, calibrate.bounds, calibrate.beyond, calibrate.infinite, calibrate.as_trimmed, layers)
        found = chosen_by(graph.graph, statistics.content, table, quantize, numerics, placement.placed.on_npu)
        tried[method] = found.ranges
    done = clip(ready, tried, free, auto.samples)
    for method, level in done.rated.items():
        log(f"{method}: {level:.2f} dB")
    log(f"taken: {done.taken:.2f} dB, on {len(ready.held)} held-out samples")
    ranges, methods = {**thresholds.ranges, **done.ranges}, {**thresholds.methods, **done.methods}
    return replace(thresholds, ranges=ranges, methods=methods)
