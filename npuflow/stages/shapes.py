"""The integer network at every further shape of [model] shapes, with the ranges, widths and weights of the
first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from npuflow.base.errors import ModelError
from npuflow.base.tables import canonical
from npuflow.base.tables import read as read_table
from npuflow.base.wording import counted
from npuflow.flow.refs import Files, Item, Listing
from npuflow.flow.stage import View, log, stage
from npuflow.input.postprocess import Postprocess
from npuflow.input.preprocess import Preprocess
from npuflow.ir.graph import Graph
from npuflow.place.islands import PlacementTable
from npuflow.quantise.config import Quantize
from npuflow.stages._candidates import PlacedNetwork, TargetNetwork
from npuflow.stages._chosen import Choices, ChosenCandidate
from npuflow.stages._targets import WholeTarget
from npuflow.stages.boxes import boxes
from npuflow.stages.model import Model, ModelTable, Shape, read, shape_name
from npuflow.stages.model import listing as of_model
from npuflow.stages.parse import Parsed, ReadingOptions, rewritten
from npuflow.stages.pixels import over_pixels
from npuflow.stages.placement import placement as placed
from npuflow.stages.preprocess import prepared
from npuflow.stages.quantize import Quantized
from npuflow.stages.quantize import quantize as quantized_by
from npuflow.tune.correct.caches import narrowed
from npuflow.tune.correct.massive import carried
from npuflow.tune.correct.shared_weights import SharedWeights, with_biases, with_weights
from npuflow.tune.ranges.thresholds import with_moved

NAMED = 5                                 # layers that an error names


class ShapedNetwork(Quantized):
    """The quantised network at one shape."""


@dataclass(frozen=True)
class ShapeScheme(View):
    """What the recipe says of every shape alike."""

    postprocess: Postprocess
    quantize: Quantize
    placement: PlacementTable


def listing(
    model: ModelTable, postprocess: Postprocess | None = None, preprocess: Preprocess | None = None,
) -> Listing:
    """The shapes behind the first, each with all that the model is known by."""
    (source,) = of_model(model).values()
    steps = None if preprocess is None else _given(canonical(preprocess))
    common = {**source.detail, "boxes": postprocess is not None, "preprocess": steps}
    return {
        shape_name(shape): replace(source, detail={**common, "shape": plain(shape)})
        for shape in model.shapes[1:]
    }


def _given(table: Any) -> Any:
    """A table without what it leaves open, as a recipe would state it."""
    if isinstance(table, dict):
        return {name: _given(value) for name, value in table.items() if value is not None}
    return [_given(value) for value in table] if isinstance(table, list) else table


def plain(shape: Shape) -> dict[str, Any]:
    """JSON-able."""
    return {name: size if isinstance(size, int) else list(size) for name, size in shape.items()}


@stage(over="files", files=listing, when="model.shapes", batch=1)
def shapes(
    files: Files,
    reading: ReadingOptions,
    graph: Parsed,
    quantized: Quantized,
    choices: Choices,
    scheme: ShapeScheme,
    whole: WholeTarget,
) -> Iterator[tuple[str, ShapedNetwork]]:
    """Read, rewrite and quantise the model at a shape, by what calibration found at the first."""
    numerics = whole.planned.numerics
    for name, item in files.items():
        source = sized(reading.model, item, name)
        if item.detail["boxes"]:
            source = boxes(source=source, postprocess=scheme.postprocess, numerics=numerics)
        if item.detail["preprocess"] is not None:
            steps, faults = read_table(Preprocess, item.detail["preprocess"])
            assert steps is not None, faults
            source = prepared(source, steps)
        parse = reading.parse
        own = rewritten(
            source.reading, parse.skip, hardware=reading.asked.known, loops=parse.loops, codes=parse.stated
        )
        _require_state(name, own.graph, graph.graph)
        own = over_pixels(own, graph.pixels) if graph.pixels else own
        if graph.trials:
            own = replace(own, graph=with_weights(own.graph, graph.graph))
        if graph.massive:
            scaled = carried(own.graph, own.stated, graph.massive)
            own = replace(own, graph=scaled.graph, stated=scaled.stated)
        if graph.caches:
            held = narrowed(own.graph, graph.caches, scheme.quantize)
            own = replace(own, graph=held.graph, caches=graph.caches, narrow=held.types)
        where = placed(graph=own, whole=whole, placement=scheme.placement)
        network = TargetNetwork(
            PlacedNetwork(own, where, scheme.quantize, numerics), whole.planned.memory, whole.planned.host,
            scheme.placement,
        )
        known = choices.thresholds
        if known is not None:
            known = replace(known, ranges=with_moved(own.graph, known.ranges))
        made: Quantized = quantized_by(ChosenCandidate(network, replace(choices, thresholds=known)))
        _require_alike(name, made, quantized)
        done = with_biases(made.graph, quantized.graph, numerics)
        if own.graph.state:
            one_candidate(name, done, quantized.graph)
        log(f"{name}: {done.layers - len(done.other)} of {done.layers} layers have the first shape's weights")
        for layer in done.other:
            log(f"{layer}: other weights than at the first shape")
        yield name, ShapedNetwork(
            done.graph, made.notes, (), made.float_macs, made.pixels, made.border
        )


def sized(model: ModelTable, item: Item, name: str) -> Model:
    """The model at a shape; a shape that it cannot have is an error of that shape."""
    shape = {n: s if isinstance(s, int) else tuple(s) for n, s in item.detail["shape"].items()}
    try:
        return read(model, item.files[0], model.bound(shape))
    except ModelError as fault:
        raise ModelError(
            f"{name}: {fault.message}", because=fault.because, hint=fault.hint, code=fault.code,
        ).at(key="model.shapes") from None


def _require_alike(name: str, made: Quantized, first: Quantized) -> None:
    """The layers that are integers at the first shape are integers at this one: a range is missing else."""
    known = {note.node for note in first.notes if note.on_host}
    floats = [note.node for note in made.notes if note.on_host and note.node not in known]
    if floats:
        raise ModelError(
            f"floats at the shape {name} and integers at the first: {counted(len(floats), 'layer')}",
            because=f"calibration at the first shape gives them no range: {_some(floats)}",
            hint="other operations run at this shape: build it with a recipe of its own, then `npuflow pack`",
            code="NF-MODEL-339",
        ).at(key="model.shapes")


def _require_state(name: str, graph: Graph, first: Graph) -> None:
    """What the network keeps from run to run is the same at both shapes."""
    if graph.state != first.state:
        wrong = sorted({*graph.state} ^ {*first.state})[0][1]
        because = f'only one of the two keeps "{wrong}"'
    else:
        kinds = {given: (graph.type(given), first.type(given)) for _, given in graph.state}
        wrong = next((given for given, (own, other) in kinds.items() if own != other), "")
        own, other = ([*kind.shape] for kind in kinds[wrong]) if wrong else ([], [])
        because = f'"{wrong}" is {own} here, and {other} at the first shape'
    if wrong:
        raise ModelError(
            f"the state at {name} is not that of the first shape", because=because,
            hint="shapes that share a state differ in other inputs alone; else one recipe for each shape",
            code="NF-MODEL-351",
        ).at(key="model.shapes")


def one_candidate(name: str, done: SharedWeights, first: Graph) -> None:
    """Where a state passes from one shape to another, all tensors and layers of one name have one type, one
    place and one weight: so any order of runs gives the same bits."""
    graph = done.graph
    typed = [v for v, one in graph.values.items() if v in first.values and one.quant != first.values[v].quant]
    known = {node.outputs[0]: node.is_integer for node in first.nodes}
    placed = [n.name for n in graph.nodes if known.get(n.outputs[0], n.is_integer) != n.is_integer]
    for wrong, what in ((done.other, "weights"), (typed, "types"), (placed, "places")):
        if wrong:
            raise ModelError(
                f"{name} has other {what} than the first shape", because=f"those of {_some(wrong)}",
                hint="another shape first, or one recipe for each shape",
                code="NF-MODEL-480",
            ).at(key="model.shapes")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
