"""What a recipe states about a model, held against the model: every name, width and
shape, all faults at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from npuflow.base.errors import DataError, NpuflowError
from npuflow.engine.calibrate.thresholds import Calibrate
from npuflow.engine.data.config import InputSample
from npuflow.engine.data.sequence import steps
from npuflow.engine.place import place
from npuflow.engine.quantize.config import FloatMode, Others, Quantize, lacking_types, scheme_faults
from npuflow.engine.quantize.names import Replaced, name_faults, stated
from npuflow.engine.search.pinned import Pins
from npuflow.engine.search.pins import float_faults
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.types import TensorType


class FloatWishes(Protocol):
    """Float types that a search may choose from, and the layers that it may give them."""

    @property
    def floats(self) -> Sequence[FloatMode] | None: ...
    @property
    def float_layers(self) -> Sequence[str]: ...


def faults(
    graph: Graph,
    calibrate: Calibrate,
    quantize: Quantize,
    pins: Pins,
    target: Target,
    samples: Mapping[str, InputSample],
    history: Sequence[Replaced] = (),
    others: Others | None = None,
    floats: FloatWishes | None = None,
) -> Iterator[NpuflowError]:
    """Every fault that the float network and a few samples show. `samples`: by name, some of them perhaps
    broken; `history`: the rewrites of the graph, for names of layers that they replaced; `others`: targets
    that a fault may suggest; `floats`: what a search for widths may choose beside integers."""
    yield from scheme_faults(quantize, target.numerics, others)
    yield from name_faults(graph, stated("calibrate.layers", calibrate.layers), history)
    yield from name_faults(graph, stated("quantize.overrides", quantize.overrides), history)
    if floats is not None:
        yield from lacking_types("floats", floats.floats or (), target.numerics, others, "precision")
        yield from name_faults(graph, [("precision.float_layers", floats.float_layers)], history)
    if pins != Pins():
        yield from float_faults(graph, place(graph, target).on_npu, pins)
    yield from _samples(graph, samples)


def _samples(graph: Graph, samples: Mapping[str, InputSample]) -> Iterator[DataError]:
    """What keeps the first sample that could be read from being fed, for every input of the model."""
    first = next(((name, one) for name, one in samples.items() if not one.broken), None)
    if first is None:
        return
    kept = {given for _, given in graph.state}
    kinds = {name: graph.type(name) for name in graph.inputs if name not in kept}
    if kept and _is_sequence(first[1], kinds):
        return
    for fault in first[1].misfits(kinds):
        yield fault.at(key="data", item=first[0])  # type: ignore[misc]


def _is_sequence(sample: InputSample, kinds: Mapping[str, TensorType]) -> bool:
    try:
        return bool(steps(sample, kinds))
    except DataError:
        return False
