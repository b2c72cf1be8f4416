"""What the layers to be rounded read on a sample: columns of their float inputs at some places, in fixed point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Self

import numpy as np

from npuflow.engine.rounding.columns import Codes, Observer
from npuflow.engine.rounding.config import rounds
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, stage
from npuflow.stages.grids import Grid
from npuflow.stages.parse import Parsed
from npuflow.stages.picked import Picked


@dataclass(frozen=True)
class Columns(Artifact):
    """Of every layer, by its name in `grids`."""

    layers: Mapping[str, Codes]

    def save(self, folder: Writer) -> None:
        folder.json("shapes", {name: list(codes.shape) for name, codes in self.layers.items()})
        with folder.stream("columns.bin") as sink:
            for codes in self.layers.values():
                sink.write(np.ascontiguousarray(codes, "<i2").tobytes())

    @classmethod
    def load(cls, folder: Reader) -> Self:
        """Mapped, and read layer by layer when they are asked for."""
        shapes: dict[str, list[int]] = folder.json("shapes")
        whole = np.memmap(folder.path("columns.bin"), "<i2", "r") if shapes else np.zeros(0, "<i2")
        found, at = {}, 0
        for name, shape in shapes.items():
            found[name] = whole[at : at + prod(shape)].reshape(shape)
            at += prod(shape)
        return cls(found)

    def summary(self) -> dict[str, Any]:
        return {"layers": len(self.layers)}


@stage(
    over="picked", when="round", wanted=rounds, cpu="native", memory="1GB", batch=16, floats=True,
    lighter="[moments] positions = 16",
)
def columns(
    picked: Items[Picked], grids: Items[Grid], graph: Parsed
) -> Iterator[tuple[str, Columns]]:
    """One pass of the float network for all layers."""
    layers = {name: one.layer for name, one in grids.items()}
    observer = Observer(graph.graph, tuple(layers.values()))
    kinds = {name: graph.graph.type(name) for name in graph.graph.inputs}
    for item, sample in picked.items():
        found = observer.columns(sample.content.feed(kinds)) if layers else []
        yield item, Columns(dict(zip(layers, found, strict=True)))
