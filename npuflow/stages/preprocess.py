"""The source model behind steps that prepare pictures, where the recipe has [preprocess]."""

from __future__ import annotations

from dataclasses import replace

from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import stage
from npuflow.input.preprocess import MAKES, Preprocess, with_preprocessing
from npuflow.stages.model import Model, plugins


def listing(preprocess: Preprocess) -> Listing:
    """No file, but the operators that the steps may need."""
    return {"steps": Item((), None, {"ops": MAKES})}


@stage(files=listing, refines="model", when="preprocess", after=("boxes",), quick=True, minor=True)
def preprocess(source: Model, files: Files, preprocess: Preprocess) -> Model:
    """Put the steps in front of the input that takes pictures."""
    return prepared(source, preprocess)


def prepared(source: Model, table: Preprocess) -> Model:
    """The model behind its steps."""
    reading = source.reading
    graph = with_preprocessing(reading.graph, table)
    stated = {name: quant for name, quant in reading.stated.items() if name in graph.values}
    return replace(
        source, reading=replace(reading, graph=graph, stated=stated), plugins=plugins(graph), changed=True
    )
