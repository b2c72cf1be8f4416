"""What a component makes of the calibration samples in floats: inputs of the components that read it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from npuflow.base.errors import DataError, ModelError, meant
from npuflow.base.tables import Config
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import Items, log, stage
from npuflow.input.data.config import Data, FoundSample
from npuflow.input.data.joined import POSITION, with_places
from npuflow.input.data.listing import found
from npuflow.input.data.read import samples as read
from npuflow.input.text.model import TextModel
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.run.floats import FloatRun
from npuflow.stages.model import Model


@dataclass(frozen=True)
class ComponentTable(Config, table="component"):
    """What a component hands on to others; a recipe with [components] writes it."""

    outputs: tuple[str, ...]
    """Outputs of the model, which `outputs.npz` holds for every calibration sample, in floats."""


@dataclass(frozen=True)
class HandedOn(Artifact, about=("place", "label")):
    """Outputs of one sample, its place among all samples, and its label if it has one."""

    arrays: Mapping[str, Array]
    place: tuple[int, int]
    label: Any = None


@dataclass(frozen=True)
class ComponentOutputs(Artifact):
    """A file of the outputs of all samples."""

    product: ClassVar[str] = "outputs"
    data: bytes

    @classmethod
    def file(cls) -> str:
        """Its name, which the recipes of those who read it have (`flow/recipe_components.py`)."""
        return f"{cls.product.replace('_', '-')}.npz"

    def save(self, folder: Writer) -> None:
        folder.bytes(self.file(), self.data)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(folder.bytes(cls.file()))

    def products(self) -> dict[str, str]:
        return {self.product: self.file()}

    def summary(self) -> dict[str, Any]:
        with np.load(io.BytesIO(self.data)) as held:
            return {"samples": len(held[POSITION]), "bytes": len(self.data)}


def gathered(parts: Items[HandedOn]) -> ComponentOutputs:
    """All outputs in one file."""
    return ComponentOutputs(npz_of(list(parts.values())))


def listing(data: Data, model: TextModel | None = None) -> Listing:
    """The samples as files hold them, each with its place."""
    return items_of(found(data, model))


def items_of(listed: Mapping[str, FoundSample]) -> Listing:
    """Listed samples with their places and labels."""
    return {
        name: Item(tuple(one.files), {
            "read": dict(one.detail), "place": list(one.place or (i, len(listed))), "label": one.label,
        })
        for i, (name, one) in enumerate(listed.items())
    }


@stage(
    over="files", files=listing, when="component", batch=32, merge=gathered, cpu="native", floats=True,
    minor=True,
)
def component_outputs(
    files: Files, source: Model, component: ComponentTable
) -> Iterator[tuple[str, HandedOn]]:
    """Run the float model on the samples."""
    yield from handed_on(files, source.reading.graph, component.outputs)


def handed_on(files: Files, graph: Graph, outputs: Sequence[str]) -> Iterator[tuple[str, HandedOn]]:
    """By sample the outputs that others read. Samples that cannot be read have none."""
    _check(graph, outputs)
    types = {name: graph.type(name) for name in graph.inputs}
    run = FloatRun.of(graph, outputs)
    for name, sample in read({name: (item.files, item.detail["read"]) for name, item in files.items()}):
        at, of = files[name].detail["place"]
        if sample.broken:
            log(f"{name} is left out: {sample.broken}")
            yield name, HandedOn({}, (at, of))
            continue
        try:
            made = run.run(sample.feed(types))
        except DataError as fault:
            raise fault.at(item=name) from None
        yield name, HandedOn(made, (at, of), files[name].detail["label"])


def _check(graph: Graph, outputs: Sequence[str]) -> None:
    """What a model can hand on: outputs that it has, of runs that do not follow each other."""
    for name in outputs:
        if name not in graph.outputs:
            raise ModelError(
                f'the model has no output "{name}"', because=f"its outputs: {', '.join(graph.outputs)}",
                hint=meant(name, graph.outputs), code="NF-RECIPE-183",
            )
    if graph.state:
        raise ModelError(
            "a component with state hands nothing on",
            because="what it makes of a sample depends on the samples before it",
            hint="let the model without state, of whole sequences, feed the other components",
            code="NF-RECIPE-184",
        )


def npz_of(parts: Sequence[HandedOn]) -> bytes:
    """The bytes of a file of outputs."""
    whole = [one for one in parts if one.arrays]
    if not whole:
        raise DataError("no sample of this component could be read", code="NF-DATA-285")
    shapes = {name: {one.arrays[name].shape for one in whole} for name in whole[0].arrays}
    for name, every in shapes.items():
        if len(every) > 1:
            raise DataError(
                f'the output "{name}" has several shapes: {", ".join(map(str, sorted(every)))}',
                because="a component takes inputs of one shape", code="NF-DATA-286",
            )
    arrays = {name: [one.arrays[name] for one in whole] for name in whole[0].arrays}
    held = with_places(arrays, [one.place for one in whole], [one.label for one in whole])
    sink = io.BytesIO()
    np.savez(sink, **held)  # type: ignore[arg-type]
    return sink.getvalue()
