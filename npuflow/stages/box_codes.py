"""Thresholds with codes of 16 bits for what decodes boxes, where the recipe has [postprocess]."""

from __future__ import annotations

from dataclasses import replace

from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import log, stage
from npuflow.input.postprocess import Postprocess
from npuflow.stages._candidates import PlacedNetwork
from npuflow.stages.model import ModelTable
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
    placed: PlacedNetwork,
    statistics: Statistics,
    postprocess: Postprocess,
) -> Thresholds:
    """Coordinates in 8 bits would be off by a pixel and more."""
    plain = placed.plain
    found = codes_of(
        plain.graph, postprocess, statistics.content, plain.scheme, plain.numerics, plain.placed.on_npu,
        files["growth"].detail["growth"],
    )
    log(described(found))
    return replace(thresholds, codes={**thresholds.codes, **found})
