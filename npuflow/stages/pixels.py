"""The float graph over pixels: a normalisation that ends the recipe's steps moves into the first layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from npuflow.base.errors import DataError
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import log, stage
from npuflow.hw.target import Numerics
from npuflow.input.data.config import Data
from npuflow.input.data.fold import Folding, folded
from npuflow.input.pixels.fold_pixels import MAKES, fold
from npuflow.input.pixels.pixels import Pixels
from npuflow.input.preprocess import Preprocess, pixel_zeros
from npuflow.ir.graph import Graph
from npuflow.stages.parse import Parsed

REAL = ("float32", "float16", "float64")


def listing(
    folding: Folding, numerics: Numerics, data: Data | None = None, preprocess: Preprocess | None = None
) -> Listing:
    """What of the data concerns the graph: which arrays hold bytes, and what their pixels stand for."""
    found = folded(data, folding, numerics, pixel_zeros(preprocess)) if data is not None else {}
    return {"pixels": Item((), {name: one.plain() for name, one in found.items()}, {"ops": MAKES})}


@stage(files=listing, refines="parse", after=("checked",), quick=True, minor=True)
def pixels(graph: Parsed, files: Files) -> Parsed:
    """Inputs of stored bytes take the bytes themselves, one code a pixel."""
    return over_pixels(graph, {name: Pixels.read(row) for name, row in files["pixels"].detail.items()})


def over_pixels(graph: Parsed, arrays: Mapping[str, Pixels]) -> Parsed:
    """The graph whose inputs are the pixels of these arrays."""
    inputs = dict(_inputs(graph.graph, arrays))
    if not inputs:
        return graph
    states = bool(graph.stated)
    done = fold(graph.graph, inputs, absorb=not states)
    for name, one in inputs.items():
        log(f"{name} takes bytes; the model's numbers are {one.text()}")
    for note in done.notes:
        log(note)
    stated = {done.real.get(name, name): quant for name, quant in graph.stated.items()}
    stated.update({name: one.quant for name, one in inputs.items()})
    return replace(graph, graph=done.graph, stated=stated, pixels=inputs, borders=done.borders)


def _inputs(graph: Graph, arrays: Mapping[str, Pixels]) -> Iterator[tuple[str, Pixels]]:
    """The model's inputs that take pixels, each held against its type."""
    for name in graph.inputs:
        one = arrays.get(name, arrays.get(""))
        if one is None and len(graph.inputs) == len(arrays) == 1:
            one = next(iter(arrays.values()))
        if one is None:
            continue
        kind, count = graph.type(name), len(one.scale)
        plain = one.scale == (1.0,) and one.shift == (0.0,)
        if kind.dtype not in REAL:
            if plain:
                continue
            hint = "[data] fold_normalize = false leaves normalisation to the caller of the program"
            raise DataError(
                f'the model input "{name}" is {kind.dtype}, and [data] normalizes it',
                hint=hint,
                code="NF-DATA-067",
            ).at(key="data.steps")
        axis = one.axis or 0
        if count > 1 and (len(kind.shape) < -axis or kind.shape[axis] not in (-1, count)):
            raise DataError(
                f'normalize has {count} numbers per channel, the model input "{name}" is {list(kind.shape)}',
                because=f"its dimension {len(kind.shape) + axis} should have that size",
                hint="`normalize = { axis = ... }` and `layout` state where the channels are",
                code="NF-DATA-056",
            ).at(key="data.steps")
        yield name, replace(one, dtype=kind.dtype)
