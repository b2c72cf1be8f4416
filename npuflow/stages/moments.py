"""The second moments of what every layer to be rounded reads, each layer an artifact
of its own: exact integers.

Its steps: the samples that are looked at, the layers with the grid of each, and the columns of every sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, Self

import numpy as np

from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, View, log, part, stage
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.place.names import names_of, stated, unknown_layers
from npuflow.place.place import op_name
from npuflow.quantise.config import Quantize
from npuflow.quantise.grouped import has_codes, lasting
from npuflow.stages._rounding_samples import RoundingSamples
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.samples import Sample
from npuflow.stages.statistics import Statistics
from npuflow.tune.rounding import moments as counting
from npuflow.tune.rounding.columns import Codes, ColumnObserver
from npuflow.tune.rounding.config import CandidateWidths, Counting, RoundTable, rounds
from npuflow.tune.rounding.layers import WeightedLayer, layers
from npuflow.tune.rounding.pruning import Prune
from npuflow.tune.rounding.rounded import Matrix, matrix


@dataclass(frozen=True)
class PickedSample(Sample):
    """One of them."""


@part
def picked(seen: RoundingSamples) -> Iterator[tuple[str, PickedSample]]:
    """Those that weights are rounded by, and those that judge it."""
    yield from first(seen)


def first(seen: RoundingSamples) -> Iterator[tuple[str, PickedSample]]:
    """The samples that moments are taken of."""
    for contents in seen.parts:
        for name, content in contents.items():
            yield name, PickedSample(content)


@dataclass(frozen=True)
class LayerGrid(Artifact):
    """One layer."""

    layer: WeightedLayer

    def summary(self) -> dict[str, Any]:
        return {"layer": self.layer.name}


@dataclass(frozen=True)
class RoundingTables(View):
    """What the recipe says of the rounding of weights."""

    rounding: RoundTable
    candidates: CandidateWidths
    quantize: Quantize
    prune: Prune


@part
def grids(
    graph: Parsed,
    placement: Placement,
    statistics: Statistics,
    table: Counting,
    wishes: RoundingTables,
    numerics: Numerics,
) -> Iterator[tuple[str, LayerGrid]]:
    """A sample beyond the next power of two makes a grid coarser, and only then what was
    counted on it is counted again."""
    unknown_layers(graph.graph, stated("round.layers", wishes.rounding.layers))
    if not rounds(wishes.quantize, wishes.rounding, wishes.candidates, wishes.prune):
        log("all weights are rounded to the nearest")
        return
    if statistics.noise:
        log("the samples are noise: all weights are rounded to the nearest")
        return
    known = statistics.content
    ends = {name: (known[name].lo, known[name].hi) for name in known.names}
    codes = lasting(graph.stated, numerics)
    for one in layers(graph.graph, placement.placed, table, ends, codes, log):
        if _has_codes(graph.graph, one, wishes.quantize, numerics):
            yield item_of(one.node), LayerGrid(one)


def item_of(node: int) -> str:
    """What a layer is called among the items of these stages, by the index of its node."""
    return f"{node:04}"


def _has_codes(graph: Graph, layer: WeightedLayer, quantize: Quantize, numerics: Numerics) -> bool:
    """Whether a layer's weight becomes codes: beside floats some have none."""
    node = graph.nodes[layer.node]
    names, kind = names_of(node), op_name(node)
    scheme, number = quantize.weights_of(names, kind), quantize.number(names, kind)
    return has_codes(graph.site(node), node.inputs.index(layer.weight), scheme, number, numerics)


@dataclass(frozen=True)
class Columns(Artifact):
    """Of every layer, by its name in `grids`."""

    layers: Mapping[str, Codes]

    def save(self, folder: Writer) -> None:
        folder.json("shapes", {name: list(codes.shape) for name, codes in self.layers.items()})
        flat = [np.zeros(0, np.int16), *(codes.reshape(-1) for codes in self.layers.values())]
        folder.array("columns", np.concatenate(flat), mapped=True)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        """Mapped, and read layer by layer when they are asked for."""
        shapes: dict[str, list[int]] = folder.json("shapes")
        whole, found, at = folder.array("columns"), {}, 0
        for name, shape in shapes.items():
            found[name] = whole[at : at + prod(shape)].reshape(shape)
            at += prod(shape)
        return cls(found)

    def summary(self) -> dict[str, Any]:
        return {"layers": len(self.layers)}


@part(
    over="picked", cpu="native", memory="1GB", batch=16, floats=True,
    lighter="[moments] positions = 16",
)
def columns(
    picked: Items[PickedSample], grids: Items[LayerGrid], graph: Parsed
) -> Iterator[tuple[str, Columns]]:
    """One pass of the float network for all layers."""
    yield from observed(picked, grids, graph)


def observed(
    picked: Items[PickedSample], grids: Items[LayerGrid], graph: Parsed
) -> Iterator[tuple[str, Columns]]:
    """What the layers read of every sample."""
    layers = {name: one.layer for name, one in grids.items()}
    observer = ColumnObserver(graph.graph, tuple(layers.values()))
    kinds = {name: graph.graph.type(name) for name in graph.graph.inputs}
    for item, sample in picked.items():
        found = observer.columns(sample.content.feed(kinds)) if layers else []
        yield item, Columns({name: one.codes for name, one in zip(layers, found, strict=True)})


@dataclass(frozen=True)
class LayerMoments(Artifact):
    """A layer with its weight: all that rounding it takes. `held`: of the held-out samples."""

    layer: WeightedLayer
    matrix: Matrix
    fit: counting.Moments
    held: counting.Moments | None

    def save(self, folder: Writer) -> None:
        layer, one = self.layer, self.matrix
        about = {
            "axis": one.axis, "inner": one.inner, "gain": one.gain,
            "names": list(one.names), "kind": one.kind, "parts": one.parts,
        }
        counts = {"fit": self.fit.count, "held": None if self.held is None else self.held.count}
        folder.json("about", {"layer": asdict(layer), "matrix": about, "counts": counts})
        arrays = {"tensor": one.tensor, "index": one.index, "sums": self.fit.sums, "gram": self.fit.gram}
        if self.held is not None:
            arrays |= {"held_sums": self.held.sums, "held_gram": self.held.gram}
        folder.arrays("moments", arrays, True)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        about, a = folder.json("about"), folder.arrays("moments")
        layer, counts, named = WeightedLayer(**about["layer"]), about["counts"], about["matrix"]
        one = Matrix(
            a["tensor"], a["index"], named["axis"], named["gain"], tuple(named["names"]), named["kind"],
            named["inner"], named["parts"],
        )
        fit = counting.Moments(counts["fit"], a["sums"], a["gram"], layer.fraction)
        if counts["held"] is None:
            return cls(layer, one, fit, None)
        return cls(
            layer, one, fit, counting.Moments(counts["held"], a["held_sums"], a["held_gram"], layer.fraction)
        )

    def summary(self) -> dict[str, Any]:
        return {"layer": self.layer.name, "columns": self.fit.count}


@stage(
    over="grids",
    when="round",
    wanted=rounds,
    parts=(picked, grids, columns),
    cpu="native",
    memory="2GB",
    batch=16,
    lighter="[moments] most_terms = 2304",
    minor=True,
)
def moments(
    grids: Items[LayerGrid], columns: Items[Columns], seen: RoundingSamples, graph: Parsed
) -> Iterator[tuple[str, LayerMoments]]:
    """Add up columns, apart for the samples that weights are rounded by and for those that judge."""
    yield from summed(grids, columns, graph, seen.names)


def summed(
    grids: Items[LayerGrid], columns: Items[Columns], graph: Parsed, parts: tuple[list[str], list[str]]
) -> Iterator[tuple[str, LayerMoments]]:
    """The moments of layers on the samples of either part."""
    fit, held = ([columns[name] for name in names] for names in parts)
    for name, grid in grids.items():
        layer = grid.layer
        node = graph.graph.nodes[layer.node]
        found = [
            counting.of_columns((one.layers[name] for one in some), layer.fraction) for some in (fit, held)
        ]
        names = tuple(names_of(node))
        one = matrix(graph.graph, layer.node, layer.weight, names, op_name(node), layer.parts)
        if found[0] is not None:
            yield name, LayerMoments(layer, one, found[0], found[1])
