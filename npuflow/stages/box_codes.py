"""Thresholds with codes of 16 bits for what decodes boxes, where the recipe has [postprocess]."""

from __future__ import annotations

from dataclasses import replace

from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import log, stage
from npuflow.hw.target import Numerics
from npuflow.input.postprocess import Postprocess
from npuflow.quantise.config import Quantize
from npuflow.stages.model import ModelTable
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.statistics import Statistics
from npuflow.stages.thresholds import Thresholds
from npuflow.tune.ranges.box_codes import box_codes as codes_of
from npuflow.tune.ranges.box_codes import described


def listing(model: ModelTable) -> Listing:
    """How much larger than the first the other shapes are."""
    return {"growth": Item((), {"growth": model.growth})}


@stage(files=listing, refines="thresholds", when="postprocess", minor=True)
def box_codes(
    thresholds: Thresholds,
    files: Files,
    graph: Parsed,
    placement: Placement,
    statistics: Statistics,
    postprocess: Postprocess,
    quantize: Quantize,
    numerics: Numerics,
) -> Thresholds:
    """Coordinates in 8 bits would be off by a pixel and more."""
    found = codes_of(
        graph.graph, postprocess, statistics.content, quantize, numerics, placement.placed.on_npu,
        files["growth"].detail["growth"],
    )
    log(described(found))
    return replace(thresholds, codes={**thresholds.codes, **found})
