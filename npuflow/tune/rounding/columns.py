"""What layers read, sample by sample: columns of their inputs at some places, in fixed point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from zlib import crc32

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.loops import stacked, steps_of
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
        own = steps_of(self.graph)
        self.kinds = {v: stacked(self.graph.type(v), own.get(v, 1)) for v in self.network.made}
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
            self.taps[layer.node] = taps(self.graph, layer, np.arange(count(self.graph, layer)))
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
    some = taps(graph, layer, places(graph, layer, seed))
    groups = graph.nodes[layer.node].op.column_groups()
    return gathered(some, groups, source, layer.fraction, layer.parts)


def count(graph: Graph, layer: WeightedLayer) -> int:
    """The places of a layer's output, those of all steps."""
    node = graph.nodes[layer.node]
    return node.op.places(graph.site(node)) * layer.steps


def taps(graph: Graph, layer: WeightedLayer, at: npt.NDArray[np.int64]) -> Taps:
    """Of some places of a layer's output. What later steps read lies behind what the first one reads."""
    node, shape = graph.nodes[layer.node], graph.type(layer.source).shape
    if layer.steps == 1:
        return node.op.columns(shape, at)
    step, inside = np.divmod(at, node.op.places(graph.site(node)))
    found = node.op.columns(shape, inside)
    further = found.first + step[:, None] * prod(shape)
    return found._replace(first=np.where(found.first < 0, found.first, further))


def places(graph: Graph, layer: WeightedLayer, seed: int) -> npt.NDArray[np.int64]:
    """The places of a layer's output that a sample is looked at."""
    every = count(graph, layer)
    at = drawn(layer, every, seed)
    return np.arange(every) if at is None else at


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
