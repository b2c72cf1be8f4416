"""The source model behind steps that prepare pictures, where the recipe has [preprocess]."""

from __future__ import annotations

from dataclasses import replace

from npuflow.engine.preprocess import Preprocess, with_preprocessing
from npuflow.flow.stage import stage
from npuflow.stages.model import Model, plugins


@stage(refines="model", after=("boxes",), quick=True, minor=True)
def preprocess(source: Model, preprocess: Preprocess) -> Model:
    """Put the steps in front of the input that takes pictures."""
    reading = source.reading
    graph = with_preprocessing(reading.graph, preprocess)
    stated = {name: quant for name, quant in reading.stated.items() if name in graph.values}
    return replace(
        source, reading=replace(reading, graph=graph, stated=stated), plugins=plugins(graph), changed=True
    )
