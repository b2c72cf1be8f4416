"""The source model as a graph, as its front end reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from npuflow.base.errors import ModelError, NpuflowError
from npuflow.base.tables import Config, Fault, FilePath, MayBeFolder, Range, Unkeyed
from npuflow.flow.artifact import Artifact
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import stage
from npuflow.frontends import (
    FRONTENDS,
    TAKEN_AS_ONE,
    Bindings,
    Described,
    Gatherer,
    Reading,
    SharesState,
    main_files,
)
from npuflow.input.batch import with_batch
from npuflow.input.begin import begun
from npuflow.input.sources import address, frontend, gathered
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.ir.text import operators
from npuflow.rules import RULES
from npuflow.run.state import with_state
from npuflow.stages._entries import GraphEntry
from npuflow.stages._lengths import of_any_length

Shape = dict[str, int | tuple[int, ...]]
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


@dataclass(frozen=True)
class ModelTable(Config, table="model"):
    """The network to compile."""

    path: Annotated[FilePath, MayBeFolder(main_files)]
    """The model's file, the folder of a SavedModel or a checkpoint, "pkg:NAME/FILE" inside a package, or
    "python:module:function" of a PyTorch module."""
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of inputs, where the model leaves dimensions free."""
    dims: dict[str, int | str] = field(default_factory=dict)
    """Sizes of free dimensions by their names in the model. A range, `{ T = "1..512" }`: one program for
    sequences of any of these lengths, whose loops run as many steps as a sample has."""
    shapes: Annotated[tuple[Shape, ...], Unkeyed()] = ()
    """Several shapes in one program, `[{ T = 64 }, { T = 128 }]`: each gives sizes of free dimensions, or
    shapes of inputs, beside `dims` and `inputs`. Calibration is done at the first. A state has the same
    shape in all of them, and passes from one to another: `[{ chunk = 1 }, { chunk = 32 }]`."""
    begin: tuple[str, ...] = ()
    """Cut points: tensors to begin at, instead of the inputs before them. The data hold their values."""
    batch: Annotated[int, Range(0, 4096)] = 0
    """Samples that the program computes at once, where the first dimension of every input is 1 in the file;
    0: as the file says."""
    outputs: tuple[str, ...] = ()
    """Cut points: tensors to end at, instead of the model's own outputs."""
    constants: dict[str, float] = field(default_factory=dict)
    """Inputs that always hold the same number (a sampling rate): they become
    constants, and branches on them fold."""
    max_steps: int | dict[str, int] | None = None
    """The most steps of loops whose end depends on data: of all of them, or `{ "loop" = 64 }` by name. Such a
    loop then has this number of steps, and those behind the end change nothing. Left out: it runs on the
    host."""
    state: dict[str, str] = field(default_factory=dict)
    """Recurrent state, key and value caches: outputs, each with the input that takes its value in the next
    run. A sequence begins with zeros."""

    def check(self) -> Iterator[Fault]:
        for name, shape in self.inputs.items():
            if any(size < 1 for size in shape):
                yield Fault(
                    f"inputs.{name}",
                    f"{list(shape)} is not a shape that can be built", hint="sizes from 1 on; a batch is 1",
                    code="NF-RECIPE-039",
                )
        yield from self._wrong_ranges()
        yield from self._wrong_steps()
        for name, size in self.dims.items():
            if isinstance(size, int) and size < 1:
                yield Fault(
                    f"dims.{name}",
                    f"{size} is not a valid size",
                    hint="sizes from 1 on",
                    code="NF-RECIPE-040",
                )
        yield from self._wrong_shapes()

    def _wrong_ranges(self) -> Iterator[Fault]:
        ranges = [name for name, size in self.dims.items() if isinstance(size, str)]
        for name in ranges:
            if name not in self.ranges:
                yield Fault(
                    f"dims.{name}", f'"{self.dims[name]}" is no range of lengths',
                    hint='"1..512": from the least to the most', code="NF-RECIPE-140",
                )
        beside = [key for key in ("shapes", "begin", "batch", "state") if getattr(self, key)]
        if ranges and (beside or len(ranges) > 1):
            because = (
                f"[model] {beside[0]} is set too" if beside else f"{' and '.join(ranges)} are ranges"
            )
            yield Fault(
                f"dims.{ranges[0]}", "a range excludes a second range, shapes, begin, batch and state",
                because, "one length, as a number", code="NF-RECIPE-141",
            )

    def _wrong_steps(self) -> Iterator[Fault]:
        stated = self.max_steps
        for name, most in (stated or {}).items() if not isinstance(stated, int) else [("", stated)]:
            if most < 1:
                yield Fault(
                    f"max_steps.{name}" if name else "max_steps", f"{most} is not a number of steps",
                    hint="1 or more: the most steps that the loop needs", code="NF-RECIPE-208",
                )

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """Dimensions that are free in a range, with the least and the most."""
        found = {}
        for name, size in self.dims.items():
            said = _RANGE.fullmatch(size) if isinstance(size, str) else None
            if said is not None and 0 < int(said[1]) < int(said[2]):
                found[name] = int(said[1]), int(said[2])
        return found

    def _wrong_shapes(self) -> Iterator[Fault]:
        for i, shape in enumerate(self.shapes):
            called = shape_name(shape) or "{}"
            if any(min(sizes if isinstance(sizes, tuple) else (sizes,), default=0) < 1
                   for sizes in shape.values()):
                yield Fault(
                    "shapes", f"{called} cannot be built", hint="sizes from 1 on", code="NF-RECIPE-116",
                )
            if not shape or shape.keys() != self.shapes[0].keys():
                yield Fault(
                    "shapes", f"{called} gives sizes for other names than the first shape",
                    f"the first is {shape_name(self.shapes[0]) or '{}'}",
                    "shapes = [{ T = 64 }, { T = 128 }]", code="NF-RECIPE-117",
                )
            elif shape in self.shapes[:i]:
                yield Fault("shapes", f"{called} stands twice", code="NF-RECIPE-118")

    @property
    def growth(self) -> float:
        """The largest of the sizes of several shapes over that of the first; 1 where that has the largest."""
        first, most = self.shapes[0] if self.shapes else {}, 1.0
        for shape in self.shapes:
            for name, sizes in shape.items():
                own, other = (s if isinstance(s, tuple) else (s,) for s in (sizes, first.get(name, sizes)))
                most = max([most, *(a / b for a, b in zip(own, other, strict=False))])
        return most

    @property
    def bindings(self) -> Bindings:
        """What is fixed of the model, at the first of several shapes."""
        return self.bound(self.shapes[0] if self.shapes else {})

    def bound(self, shape: Mapping[str, int | tuple[int, ...]]) -> Bindings:
        """What is fixed of the model at one shape."""
        inputs = {name: sizes for name, sizes in shape.items() if isinstance(sizes, tuple)}
        dims = {name: size for name, size in shape.items() if isinstance(size, int)}
        most = {name: most for name, (_, most) in self.ranges.items()}
        fixed = {name: size for name, size in self.dims.items() if isinstance(size, int)}
        return Bindings(
            {**self.inputs, **inputs}, {**fixed, **most, **dims}, self.outputs, self.constants,
            self.max_steps, self.largest,
        )

    @property
    def largest(self) -> Mapping[str, int | tuple[int, ...]]:
        """The largest sizes of several shapes, by name."""
        found: dict[str, int | tuple[int, ...]] = {}
        for name, size in ((name, size) for shape in self.shapes for name, size in shape.items()):
            other = found.get(name, size)
            if isinstance(size, int):
                found[name] = max(size, other) if isinstance(other, int) else size
            else:
                pairs = zip(size, other, strict=False) if isinstance(other, tuple) else ()
                found[name] = tuple(max(pair) for pair in pairs)
        return found


def shape_name(shape: Mapping[str, int | Sequence[int]]) -> str:
    """What a shape is called, as a network of a program and as an item: `T=64`, `x=1x3x96x96`."""
    texts = {n: str(s) if isinstance(s, int) else "x".join(map(str, s)) for n, s in shape.items()}
    return ",".join(f"{name}={text}" for name, text in texts.items())


@dataclass(frozen=True)
class Model(
    Artifact, spread=("reading",), optional=("changed", "stated"), codecs={"graph": GraphEntry},
    about=("format", "plugins", "changed"),
):
    """What the front end read, the format it was in, and the plug-ins that rewriting may need. `changed`: the
    recipe asks for other inputs or outputs than cut points at the end."""

    format: str
    reading: Reading
    plugins: Mapping[str, tuple[str, ...]]
    changed: bool = False

    def uses(self) -> dict[str, tuple[str, ...]]:
        return dict(self.plugins)

    def summary(self) -> dict[str, Any]:
        consts = self.reading.graph.consts.values()
        return {"nodes": len(self.reading.graph.nodes), "bytes": sum(array.nbytes for array in consts)}


def plugins(graph: Graph) -> dict[str, tuple[str, ...]]:
    """What rewriting may use: the operators of the graph and those that rules make, all rules."""
    made = {op for rule in RULES.names() for op in RULES[rule].makes}
    ops = sorted({"host", *operators(graph), *(op for op in made if op in OPS)})
    return {"ops": tuple(ops), "rules": RULES.names()}


def listing(model: ModelTable) -> Listing:
    """The model and its external files. Which operators and rules exist decides what is made of it, so it
    counts."""
    _, reader = frontend(model.path.path)
    detail = {
        "ops": list(OPS.names()),
        "rules": list(RULES.names()),
        "suffix": model.path.path.suffix.lower(),
        **_described(reader, model),
        **_shaped(reader, model),
    }
    uses = {"frontends": FRONTENDS.names(), "ops": OPS.names(), "rules": RULES.names()}
    return {"model": Item(reader.files(model.path.path), detail, uses)}


def written(model: ModelTable) -> Listing:
    """The model's files alone, for what runs it as it was written."""
    _, reader = frontend(model.path.path)
    detail = {**_described(reader, model), **_shaped(reader, model)}
    return {"model": Item(reader.files(model.path.path), detail, {"frontends": FRONTENDS.names()})}


def _shaped(reader: Gatherer, model: ModelTable) -> dict[str, Any]:
    """The first of several shapes, and what all of them make of a state that they share: nothing else of the
    others counts."""
    if not model.shapes:
        return {}
    own: Mapping[str, int] = {}
    if isinstance(reader, SharesState):
        with suppress(NpuflowError, OSError):     # whatever is wrong with it is the step's to say
            own = reader.shared(address(model.path), model.bindings)
    first = {n: s if isinstance(s, int) else list(s) for n, s in model.shapes[0].items()}
    return {"shape": first, **({"shared": dict(own)} if own else {})}


def _described(reader: Gatherer, model: ModelTable) -> dict[str, Any]:
    """What a model is known by beside its files: of a function, what it reaches and gives."""
    if not model.path.function:
        return {}
    more = reader.described(address(model.path)) if isinstance(reader, Described) else {}
    return {"function": model.path.function, **more}


def _changed(reading: Reading, change: Callable[[Graph], Graph], key: str) -> Reading:
    """Another graph, as a key of the recipe asks for it; codes are stated of the values that it has."""
    try:
        graph = change(reading.graph)
    except ModelError as fault:
        raise fault.at(key=f"model.{key}") from None
    stated = {name: quant for name, quant in reading.stated.items() if name in graph.values}
    return replace(reading, graph=graph, stated=stated)


def only_arrays(graph: Graph) -> None:
    """A ModelError for an output that is a sequence or a map, which no program gives. Text is an array."""
    for name in graph.outputs:
        kind = graph.type(name).dtype
        if kind.startswith(("sequence", "map", "optional")):
            raise ModelError(
                f'the output "{name}" is no array', because=f"it is of the type {kind}",
                hint="[model] outputs = [...] with the names of tensors in front of it", code="NF-MODEL-554",
            ).at(key="model.outputs")


def batched(reading: Reading, batch: int) -> Reading:
    """What was read, for so many samples at once; 0: as it is."""
    if not batch:
        return reading
    notes = tuple(n for n in reading.notes if not n.endswith(TAKEN_AS_ONE))
    changed = _changed(reading, lambda graph: with_batch(graph, batch), "batch")
    return replace(changed, notes=notes)


@stage(files=listing, quick=True, minor=True)
def model(files: Files, model: ModelTable) -> Model:
    """Read the model's files as a graph: types inferred, constants folded, nothing rewritten."""
    return read(model, files["model"].files[0], model.bindings)


def read(model: ModelTable, path: Path, bindings: Bindings) -> Model:
    """The model with these sizes, cut and with state as the recipe says."""
    name, reader, source = gathered(address(model.path, path))
    reading = reader.read(source, bindings)
    only_arrays(reading.graph)
    for dim, (least, most) in model.ranges.items():
        def at(count: int, dim: str = dim) -> Graph:
            return reader.read(source, replace(bindings, dims={**bindings.dims, dim: count})).graph

        whole = of_any_length(reading.graph, at, dim, least, most)
        reading = replace(reading, graph=whole)
    own = dict(reading.graph.state)                    # what the file itself says, as TFLite's variables do
    if own:
        reading = replace(reading, graph=reading.graph.replaced(state=()))
    if model.begin:
        reading = _changed(reading, lambda graph: begun(graph, model.begin), "begin")
    reading = batched(reading, model.batch)
    free = set(reading.graph.inputs) - set(model.state.values())
    stated = {**{o: i for o, i in own.items() if i in free}, **model.state}
    if stated:
        reading = _changed(reading, lambda graph: with_state(graph, stated), "state")
    changed = bool(model.begin or model.batch or model.ranges)
    return Model(name, reading, plugins(reading.graph), changed)
