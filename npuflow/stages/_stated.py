"""What a recipe states about a model, held against the model: every name, width and
shape, all faults at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from npuflow.base.errors import DataError, NpuflowError
from npuflow.flow.stage import View
from npuflow.hw.rows import check_rows
from npuflow.hw.target import Target
from npuflow.input.data.config import InputSample
from npuflow.input.data.sequence import steps
from npuflow.ir.graph import Graph
from npuflow.ir.types import TensorType
from npuflow.place.names import name_faults, stated
from npuflow.place.place import place
from npuflow.quantise.config import Quantize
from npuflow.quantise.indices import checked_rows
from npuflow.quantise.wishes import Others, lacking_types, scheme_faults
from npuflow.rules import Applied
from npuflow.search.pinned import Pins
from npuflow.search.pins import float_faults
from npuflow.stages.tiling import Tiling
from npuflow.tune.channels.config import ChannelPruning
from npuflow.tune.precision.config import PrecisionTable, Widths, width_faults
from npuflow.tune.ranges.thresholds import Calibrate
from npuflow.tune.rounding.config import RoundTable
from npuflow.tune.rounding.pruning import Prune


@dataclass(frozen=True)
class Wishes(View):
    """The tables of a recipe that speak of the model's layers or of the target's numbers."""

    calibrate: Calibrate
    quantize: Quantize
    tiling: Tiling
    precision: PrecisionTable
    widths: Widths
    rounding: RoundTable
    prune: Prune
    channels: ChannelPruning

    @property
    def names(self) -> Iterator[tuple[str, Sequence[str]]]:
        """Names of layers, by key."""
        yield from stated("calibrate.layers", self.calibrate.layers)
        yield from stated("quantize.overrides", self.quantize.overrides)
        yield "precision.float_layers", self.widths.float_layers
        yield from stated("round.layers", self.rounding.layers)
        yield from (("prune.layers", self.prune.layers), ("prune.skip", self.prune.skip))
        yield from self.channels.named


def faults(
    graph: Graph,
    wishes: Wishes,
    target: Target,
    samples: Mapping[str, InputSample],
    history: Sequence[Applied] = (),
    others: Others | None = None,
) -> Iterator[NpuflowError]:
    """Every fault that the float network and a few samples show. `samples`: by name, some of them perhaps
    broken; `history`: the rewrites of the graph, for names of layers that they replaced; `others`: targets
    that a fault may suggest."""
    numerics = target.numerics
    yield from scheme_faults(wishes.quantize, numerics, others)
    yield from name_faults(graph, wishes.names, history)
    yield from width_faults(wishes.precision, wishes.widths, numerics, wishes.quantize)
    yield from lacking_types("floats", wishes.widths.floats or (), numerics, others, "precision")
    if wishes.tiling.pins != Pins():
        yield from float_faults(graph, place(graph, target).on_npu, wishes.tiling.pins)
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
    faults = list(first[1].misfits(kinds))
    for fault in faults:
        yield fault.at(key="data", item=first[0])  # type: ignore[misc]
    if not faults:
        yield from _indices(graph, samples, kinds)


def _indices(
    graph: Graph, samples: Mapping[str, InputSample], kinds: Mapping[str, TensorType]
) -> Iterator[DataError]:
    """The first index of each input that is outside of its table: by the names that the user gave."""
    rows = {name: kept for name, kept in checked_rows(graph, graph.nodes).items() if name in kinds}
    for item, sample in samples.items() if rows else ():
        if sample.broken or list(sample.misfits(kinds)):
            continue
        for name, given in sample.feed(kinds).items():
            if name in rows:
                try:
                    check_rows(given, rows[name].below, name, rows[name].parts)
                except DataError as fault:
                    yield fault.at(key="data", item=item)  # type: ignore[misc]
                    del rows[name]


def _is_sequence(sample: InputSample, kinds: Mapping[str, TensorType]) -> bool:
    try:
        return bool(steps(sample, kinds))
    except DataError:
        return False
