"""What a component makes of the calibration samples in floats: inputs of the components that read it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, ClassVar, Self

import numpy as np

from npuflow.base.errors import DataError, ModelError, meant
from npuflow.base.tables import Config
from npuflow.base.tables_files import FilePath
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
    """Outputs of the model, which `outputs.npz` holds for every calibration sample, in floats; of a function,
    the arrays that it yields."""
    # makes rows for other components from a sample's inputs and outputs
    hands_on: FilePath | None = None


@dataclass(frozen=True)
class HandedOn(Artifact, about=("place", "labels")):
    """What one sample hands on: arrays [rows, ...], a label (or None) for each row, and the sample's place
    among all samples, None where rows are a function's. A row, unless it could not be read, or a function
    makes others."""

    arrays: Mapping[str, Array]
    place: tuple[int, int] | None
    labels: Sequence[Any] = ()


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
    yield from handed_on(files, source.reading.graph, component)


def handed_on(
    files: Files, graph: Graph, table: ComponentTable
) -> Iterator[tuple[str, HandedOn]]:
    """By sample what others read. Samples that cannot be read have nothing."""
    function = table.hands_on
    outputs = tuple(graph.outputs) if function is not None else table.outputs
    _check(graph, outputs)
    types = {name: graph.type(name) for name in graph.inputs}
    run = FloatRun.of(graph, outputs)
    for name, sample in read({name: (item.files, item.detail["read"]) for name, item in files.items()}):
        detail = files[name].detail
        at, of = detail["place"]
        if sample.broken:
            log(f"{name} is left out: {sample.broken}")
            yield name, HandedOn({}, (at, of))
            continue
        try:
            feed = sample.feed(types)
            made = run.run(feed)
            if function is None:
                row = {key: array[None] for key, array in made.items()}
                yield name, HandedOn(row, (at, of), (detail["label"],))
            else:
                yield name, rows_of(function, {**feed, **made}, detail["label"], table.outputs)
        except DataError as fault:
            raise fault.at(item=name) from None


def rows_of(
    function: FilePath, arrays: Mapping[str, Array], label: Any, wanted: Sequence[str]
) -> HandedOn:
    """What a function of the user's makes of a sample: it yields arrays by name, or these and a label, any
    number of times. DataError where it fails, or yields something else."""
    rows: list[Mapping[str, Array]] = []
    labels: list[Any] = []
    called = function.called()
    try:
        for made in called(dict(arrays), label):
            values, own = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
            rows.append({name: np.asarray(values[name]) for name in wanted})
            labels.append(own.tolist() if isinstance(own, np.generic | np.ndarray) else own)
        stacked = {name: np.stack([row[name] for row in rows]) for name in wanted if rows}
    except Exception as fault:  # the boundary to the user's own code
        frame = extract_tb(fault.__traceback__)[-1]
        raise DataError(
            f"the function {function.text} fails", code="NF-DATA-288",
            because=f"{type(fault).__name__}: {fault} ({Path(frame.filename).name}, line {frame.lineno})",
            hint=f"it takes arrays by name and a label, and yields arrays ({', '.join(wanted)}) of equal "
            "shapes, with or without a label",
        ) from fault
    return HandedOn(stacked, None, labels)


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
        raise DataError(
            "this component hands nothing on", code="NF-DATA-285",
            because="none of its samples could be read, or its function made nothing of any",
        )
    shapes = {name: {one.arrays[name].shape[1:] for one in whole} for name in whole[0].arrays}
    for name, every in shapes.items():
        if len(every) > 1:
            raise DataError(
                f'the output "{name}" has several shapes: {", ".join(map(str, sorted(every)))}',
                because="a component takes inputs of one shape", code="NF-DATA-286",
            )
    arrays = {name: np.concatenate([one.arrays[name] for one in whole]) for name in whole[0].arrays}
    labels = [label for one in whole for label in one.labels]
    known = [one.place for one in whole if one.place is not None]
    places = known or [(row, len(labels)) for row in range(len(labels))]
    held = with_places(arrays, places, labels)
    sink = io.BytesIO()
    np.savez(sink, **held)  # type: ignore[arg-type]
    return sink.getvalue()
