"""The float graph without channels that [prune.channels] removes: fewer products, fewer bytes.

Its steps: the samples that are looked at, what their values reach, the grid of each layer, columns of every
sample and moments of every layer. Another share, method or multiple runs no inference again for these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from npuflow.flow.stage import Items, log, part, stage
from npuflow.ir.graph import Graph
from npuflow.place.names import unknown_layers
from npuflow.stages._float_moments import Peaks, by_node, grids_of, peaks_of
from npuflow.stages._rounding_samples import RoundingSamples
from npuflow.stages._targets import Accelerator
from npuflow.stages.moments import Columns, LayerGrid, LayerMoments, PickedSample, first, observed, summed
from npuflow.stages.parse import Parsed
from npuflow.tune.channels.config import ChannelPruning
from npuflow.tune.channels.removal import remove_channels
from npuflow.tune.improve import ASKED, Proposal, Trial, improve
from npuflow.tune.rounding.config import Counting


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


@stage(
    refines="parse",
    when="prune.channels",
    after=("checked", "pixels"),
    parts=(picked, peaks, grids, columns, layers),
    cpu="native",
    memory="2GB",
    floats=True,
    lighter="[moments] most_terms = 2304",
)
def pruned(
    graph: Parsed,
    layers: Items[LayerMoments],
    seen: RoundingSamples,
    channels: ChannelPruning,
) -> Parsed:
    """Remove channels, refit the layers that read them, and compare the outputs on held-out samples."""
    source = graph.graph
    unknown_layers(source, channels.named)
    if set(graph.stated) - set(graph.pixels):
        log("the model states the codes of its weights: nothing is removed")
        return replace(graph, kept="the model states the codes of its weights")
    done = remove_channels(source, by_node(layers), channels)
    judge, whole = seen.judge(source), tuple[Trial, ...]()
    if done.masks and judge.held:
        refitted = Proposal("prune", done.graph, change=_share(source, done.graph), rule=ASKED)
        _, whole = improve(done.plain, [refitted], lambda one: judge.score(one).error)
    trials = (*done.trials, *whole)
    for trial in trials:
        log(trial.line())
    if not done.masks:
        return replace(graph, kept=_why(done.trials))
    return replace(
        graph, graph=done.graph, before=source, masks=done.masks, trials=(*graph.trials, *trials)
    )


def _why(trials: Sequence[Trial]) -> str:
    """Why no group of channels lost one."""
    if not trials:
        return "no layer of the network has channels that could go"
    reasons = Counter(one.reason for one in trials)
    reason, count = reasons.most_common(1)[0]
    return f"{count} of {len(trials)} groups of channels: {reason}"


def _share(whole: Graph, less: Graph) -> float:
    """Of the numbers in constants, those that are removed."""
    sizes = [sum(array.size for array in one.consts.values()) for one in (whole, less)]
    return 1 - sizes[1] / max(sizes[0], 1)
