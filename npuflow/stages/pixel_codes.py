"""Thresholds with one code a pixel for what [preprocess] makes of pictures before it normalises them."""

from __future__ import annotations

from dataclasses import replace

from npuflow.base.wording import counted
from npuflow.flow.stage import log, stage
from npuflow.input.preprocess import Preprocess, pixel_values
from npuflow.stages.parse import Parsed
from npuflow.stages.thresholds import Thresholds


@stage(refines="thresholds", when="preprocess", after=("box_codes",), minor=True)
def pixel_codes(thresholds: Thresholds, graph: Parsed, preprocess: Preprocess) -> Thresholds:
    """Pixels stay pixels: calibration might clip them or take another step."""
    found = pixel_values(graph.graph, graph.pixels, preprocess)
    log(f"codes of their own for {counted(len(found), 'tensor')} of pixels and their weights")
    return replace(thresholds, codes={**thresholds.codes, **found})
