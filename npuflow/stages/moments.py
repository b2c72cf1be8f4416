"""The second moments of what every layer to be rounded reads, each layer an artifact of its own: exact integers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from npuflow.engine.correct.error import split
from npuflow.engine.place import op_name
from npuflow.engine.quantize.names import names_of
from npuflow.engine.rounding import moments as counting
from npuflow.engine.rounding.config import Counting, rounds
from npuflow.engine.rounding.layers import Layer
from npuflow.engine.rounding.rounded import Matrix, matrix
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, stage
from npuflow.stages.columns import Columns
from npuflow.stages.grids import Grid
from npuflow.stages.parse import Parsed


@dataclass(frozen=True)
class Moments(Artifact):
    """A layer with its weight: all that rounding it takes. `held`: of the held-out samples."""

    layer: Layer
    matrix: Matrix
    fit: counting.Moments
    held: counting.Moments | None

    def save(self, folder: Writer) -> None:
        layer, one = self.layer, self.matrix
        about = {"axis": one.axis, "gain": one.gain, "names": list(one.names), "kind": one.kind}
        counts = {"fit": self.fit.count, "held": None if self.held is None else self.held.count}
        folder.json("about", {"layer": vars(layer), "matrix": about, "counts": counts})
        arrays = {"tensor": one.tensor, "index": one.index, "sums": self.fit.sums, "gram": self.fit.gram}
        if self.held is not None:
            arrays |= {"held_sums": self.held.sums, "held_gram": self.held.gram}
        folder.arrays("moments", arrays, True)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        about, a = folder.json("about"), folder.arrays("moments")
        layer, counts, named = Layer(**about["layer"]), about["counts"], about["matrix"]
        one = Matrix(a["tensor"], a["index"], named["axis"], named["gain"], tuple(named["names"]), named["kind"])
        fit = counting.Moments(counts["fit"], a["sums"], a["gram"], layer.fraction)
        if counts["held"] is None:
            return cls(layer, one, fit, None)
        return cls(layer, one, fit, counting.Moments(counts["held"], a["held_sums"], a["held_gram"], layer.fraction))

    def summary(self) -> dict[str, Any]:
        return {"layer": self.layer.name, "columns": self.fit.count}


@stage(over="grids", when="round", wanted=rounds, cpu="native", memory="2GB", batch=16, lighter="[moments] most_terms = 2304")
def moments(
    grids: Items[Grid], columns: Items[Columns],
    graph: Parsed, table: Counting,
) -> Iterator[tuple[str, Moments]]:  # fmt: skip
    """Add up columns, apart for the samples that weights are rounded by and for those that judge."""
    fit, held = split(list(columns.values()), table.held_out)
    for name, grid in grids.items():
        layer = grid.layer
        node = graph.graph.nodes[layer.node]
        found = [counting.of_columns((one.layers[name] for one in some), layer.fraction) for some in (fit, held)]
        one = matrix(graph.graph, layer.node, layer.weight, tuple(names_of(node)), op_name(node))
        if found[0] is not None:
            yield name, Moments(layer, one, found[0], found[1])
