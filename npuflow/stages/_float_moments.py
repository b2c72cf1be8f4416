"""What the stages share that take moments of the float network before anything else of it is decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from npuflow.flow.artifact import Artifact
from npuflow.flow.stage import Items, log
from npuflow.hw.target import Target
from npuflow.place.place import place
from npuflow.quantise.grouped import lasting
from npuflow.run.floats import FloatRun
from npuflow.stages.moments import LayerGrid, LayerMoments, PickedSample, item_of
from npuflow.stages.parse import Parsed
from npuflow.tune.channels.removal import ReaderMoments
from npuflow.tune.rounding.config import Counting
from npuflow.tune.rounding.layers import layers as weighted


@dataclass(frozen=True)
class Peaks(Artifact, peaks="content"):
    """Of one sample: the largest magnitude of every value that a layer reads."""

    content: dict[str, float]


def peaks_of(picked: Items[PickedSample], graph: Parsed) -> Iterator[tuple[str, Peaks]]:
    """One pass of the float network."""
    source = graph.graph
    read = {n.inputs[0]: None for n in source.nodes if len(n.inputs) > 1 and n.op.role(1) == "weight"}
    network = FloatRun.of(source, [name for name in read if source.const(name) is None])
    kinds = {name: source.type(name) for name in source.inputs}
    for item, sample in picked.items():
        feed = sample.content.feed(kinds)
        known = {name: feed[name] for name in read if name in feed}
        known.update(network.run(feed))
        yield item, Peaks({name: float(np.abs(array).max()) for name, array in known.items() if array.size})


def grids_of(
    graph: Parsed, peaks: Items[Peaks], table: Counting, target: Target
) -> Iterator[tuple[str, LayerGrid]]:
    """A power-of-two grid for the input of every layer."""
    ends: dict[str, tuple[float, float]] = {}
    for one in peaks.values():
        for name, peak in one.content.items():
            ends[name] = (0.0, max(peak, ends.get(name, (0.0, 0.0))[1]))
    codes = lasting(graph.stated, target.numerics)
    for layer in weighted(graph.graph, place(graph.graph, target), table, ends, codes, log):
        yield item_of(layer.node), LayerGrid(layer)


def by_node(layers: Items[LayerMoments]) -> dict[int, ReaderMoments]:
    """Moments of the layers that read channels."""
    return {
        one.layer.node: ReaderMoments(one.layer, one.matrix, one.fit, one.held) for one in layers.values()
    }
