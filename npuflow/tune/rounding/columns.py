"""What layers read, sample by sample: columns of their inputs at some places, in fixed point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.ir.windows import Taps
from npuflow.run.floats import FloatRun
from npuflow.tune.rounding.layers import WeightedLayer

Codes = npt.NDArray[np.int16]             # [groups, places, terms]


@dataclass
class ColumnObserver:
    """The float network with every input of a layer as an output: one pass a sample for all layers."""

    graph: Graph
    layers: Sequence[WeightedLayer]

    def __post_init__(self) -> None:
        self.network = FloatRun.of(self.graph, [one.source for one in self.layers])
        self.kinds = {name: self.graph.type(name) for name in self.network.made}
        self.taps: dict[int, Taps] = {}

    def columns(self, feed: Mapping[str, Array]) -> list[Codes]:
        """Of every layer."""
        known = {**feed, **self.network.reused(feed, self.kinds)}
        seed = seed_of(self.graph, feed)
        return [self._columns(one, known[one.source], seed) for one in self.layers]

    def _columns(self, layer: WeightedLayer, source: Array, seed: int) -> Codes:
        """As `columns`, with the places of all columns of a layer found once."""
        node = self.graph.nodes[layer.node]
        if layer.node not in self.taps:
            count = node.op.places(self.graph.site(node))
            self.taps[layer.node] = node.op.columns(source.shape, np.arange(count))
        every = self.taps[layer.node]
        at = drawn(layer, len(every.first), seed)
        some = every if at is None else every._replace(first=every.first[at])
        return gathered(some, node.op.column_groups(), source, layer.fraction, layer.parts)


def seed_of(graph: Graph, feed: Mapping[str, Array]) -> int:
    """What places are drawn by: the sample's numbers."""
    seed = 0
    for name in graph.inputs:
        seed = crc32(np.ascontiguousarray(feed[name]).data, seed)
    return seed


def columns(graph: Graph, layer: WeightedLayer, source: Array, seed: int) -> Codes:
    """A layer's columns of one sample. Places are drawn, by what the sample holds: neither its
    name nor its order matters."""
    node, at = graph.nodes[layer.node], places(graph, layer, seed)
    taps, groups = node.op.columns(source.shape, at), node.op.column_groups()
    return gathered(taps, groups, source, layer.fraction, layer.parts)


def places(graph: Graph, layer: WeightedLayer, seed: int) -> npt.NDArray[np.int64]:
    """The places of a layer's output that a sample is looked at."""
    node = graph.nodes[layer.node]
    count = node.op.places(graph.site(node))
    at = drawn(layer, count, seed)
    return np.arange(count) if at is None else at


def drawn(layer: WeightedLayer, count: int, seed: int) -> npt.NDArray[np.int64] | None:
    """Of `count` places of a layer's output those that a sample is looked at, ascending; None: all."""
    if layer.places >= count:
        return None
    rng = np.random.default_rng((seed, layer.node))
    return np.asarray(np.sort(rng.choice(count, layer.places, replace=False, shuffle=False)))


def gathered(taps: Taps, groups: int, source: Array, fraction: int, parts: int = 1) -> Codes:
    """The columns of an input, on a power-of-two grid; what lies beyond it (infinities, too) becomes its end,
    and NaN zero. `parts`: blocks of channels that every group is cut into, each a group of the result."""
    from npuflow.tune.rounding.kernels import gather

    places, window = taps.first.shape
    codes = np.empty((groups * parts, places, taps.channels // parts * window), np.int16)
    flat = np.ascontiguousarray(source, np.float32).reshape(-1)
    gather(flat, taps.first, taps.step, np.float32(2.0**fraction), codes)
    return codes
