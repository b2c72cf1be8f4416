"""Orders channels so that a pattern of zeros costs less, where [prune] asks for it.
The network computes the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from npuflow.flow.stage import Items, log, part, stage
from npuflow.stages._float_moments import Peaks, by_node, grids_of, peaks_of
from npuflow.stages._rounding_samples import RoundingSamples
from npuflow.stages._targets import Accelerator
from npuflow.stages.moments import Columns, LayerGrid, LayerMoments, PickedSample, first, observed, summed
from npuflow.stages.parse import Parsed
from npuflow.tune.channels.order import order_channels
from npuflow.tune.rounding.config import Counting
from npuflow.tune.rounding.pruning import Prune


@part
def picked(seen: RoundingSamples) -> Iterator[tuple[str, PickedSample]]:
    """The samples that moments are taken of."""
    yield from first(seen)


@part(over="picked", cpu="native", memory="1GB", batch=16, floats=True)
def peaks(picked: Items[PickedSample], graph: Parsed) -> Iterator[tuple[str, Peaks]]:
    """One pass of the float network."""
    yield from peaks_of(picked, graph)


@part
def grids(
    graph: Parsed, peaks: Items[Peaks], table: Counting, accelerator: Accelerator
) -> Iterator[tuple[str, LayerGrid]]:
    """A power-of-two grid for the input of every layer."""
    yield from grids_of(graph, peaks, table, accelerator.target)


@part(over="picked", cpu="native", memory="1GB", batch=16, floats=True)
def columns(
    picked: Items[PickedSample], grids: Items[LayerGrid], graph: Parsed
) -> Iterator[tuple[str, Columns]]:
    """What the layers read."""
    yield from observed(picked, grids, graph)


@part(over="grids", cpu="native", memory="2GB", batch=16)
def layers(
    grids: Items[LayerGrid], columns: Items[Columns], seen: RoundingSamples, graph: Parsed
) -> Iterator[tuple[str, LayerMoments]]:
    """Sums of products, exact."""
    yield from summed(grids, columns, graph, seen.names)


def needless(table: Prune) -> str:
    """Why channels stay in their order."""
    asked = table.permute and table.groups is not None
    return "" if asked else 'the recipe does not have permute = true of [prune] with a pattern "N:M"'


@stage(
    refines="parse", when="prune", unless=needless, after=("checked", "pixels", "pruned"),
    parts=(picked, peaks, grids, columns, layers), cpu="native", memory="2GB", floats=True,
    lighter="[moments] most_terms = 2304",
)
def ordered(graph: Parsed, layers: Items[LayerMoments], prune: Prune) -> Parsed:
    """Find groups of channels that can change places, and an order for each."""
    source = graph.graph
    if set(graph.stated) - set(graph.pixels):
        log("the model states the codes of its weights: channels stay in their order")
        return graph
    done = order_channels(source, by_node(layers), prune)
    for trial in done.trials:
        log(trial.line())
    return replace(graph, graph=done.graph, trials=(*graph.trials, *done.trials))
