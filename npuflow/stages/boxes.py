"""The source model with boxes as its output, where the recipe has [postprocess]."""

from __future__ import annotations

from dataclasses import replace

from npuflow.flow.stage import stage
from npuflow.hw.target import Numerics
from npuflow.input.postprocess import Postprocess, with_boxes
from npuflow.stages.model import Model, plugins


@stage(refines="model", quick=True, minor=True)
def boxes(source: Model, postprocess: Postprocess, numerics: Numerics) -> Model:
    """Append what decodes the detection heads and selects boxes."""
    reading = source.reading
    graph = with_boxes(reading.graph, postprocess, numerics)
    stated = {name: quant for name, quant in reading.stated.items() if name in graph.values}
    reading = replace(reading, graph=graph, stated=stated)
    return replace(source, reading=reading, plugins=plugins(graph), changed=True)
