"""What layers read, sample by sample: columns of their inputs at some places, in fixed point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.loops import stacked, steps_of
from npuflow.ir.types import Array
from npuflow.ir.windows import Taps
from npuflow.run.floats import FloatRun
from npuflow.tune.rounding.attended import Reals, ways_to_attention
from npuflow.tune.rounding.layers import WeightedLayer

Codes = npt.NDArray[np.int16]             # [groups, places, terms]
Places = npt.NDArray[np.int64]


class ChosenColumns(NamedTuple):
    """Which columns of a sample are looked at: those at some places of the layer's output, ascending.
    `shares` [columns, places]: sums of them by shares instead, where attention adds the places up."""

    places: Places
    shares: Reals | None = None


class LayerColumns(NamedTuple):
    """What a layer reads of one sample."""

    chosen: ChosenColumns
    codes: Codes


@dataclass
class ColumnObserver:
    """The float network with every input of a layer as an output: one pass a sample for all layers."""

    graph: Graph
    layers: Sequence[WeightedLayer]

    def __post_init__(self) -> None:
        self.ways = ways_to_attention(self.graph, [one.node for one in self.layers])
        others = [v for way in self.ways.values() for v in way.read(self.graph)]
        self.network = FloatRun.of(self.graph, [*(one.source for one in self.layers), *others])
        own = steps_of(self.graph)
        self.kinds = {v: stacked(self.graph.type(v), own.get(v, 1)) for v in self.network.made}
        self.taps: dict[int, Taps] = {}

    def columns(self, feed: Mapping[str, Array]) -> list[LayerColumns]:
        """Of every layer. Places are drawn, by what the sample holds: neither its name nor its order
        matters."""
        known = {**feed, **self.network.reused(feed, self.kinds)}
        seed = 0
        for name in self.graph.inputs:
            seed = crc32(np.ascontiguousarray(feed[name]).data, seed)
        return [self._columns(one, known, seed) for one in self.layers]

    def _columns(self, layer: WeightedLayer, known: Mapping[str, Array], seed: int) -> LayerColumns:
        """As `columns`, with the places of all columns of a layer found once."""
        node = self.graph.nodes[layer.node]
        if layer.node not in self.taps:
            self.taps[layer.node] = taps(self.graph, layer, np.arange(count(self.graph, layer)))
        every, way = self.taps[layer.node], self.ways.get(layer.node)
        if way is None:
            chosen = ChosenColumns(drawn(layer, len(every.first), seed))
        else:
            shares = way.shares(self.graph, known, layer.places, seed)
            chosen = ChosenColumns(np.arange(len(every.first)), shares)
        some, source = every._replace(first=every.first[chosen.places]), known[layer.source]
        codes = gathered(some, node.op.column_groups(), source, layer.fraction, layer.parts)
        return LayerColumns(chosen, summed(codes, chosen.shares))


def columns(graph: Graph, layer: WeightedLayer, source: Array, chosen: ChosenColumns) -> Codes:
    """A layer's columns of one sample, those that were observed."""
    groups = graph.nodes[layer.node].op.column_groups()
    codes = gathered(taps(graph, layer, chosen.places), groups, source, layer.fraction, layer.parts)
    return summed(codes, chosen.shares)


def summed(codes: Codes, shares: Reals | None) -> Codes:
    """Sums of columns by shares, on their grid."""
    if shares is None:
        return codes
    ends = np.iinfo(np.int16)
    return np.clip(np.rint(np.matmul(shares, codes)), ends.min, ends.max).astype(np.int16)


def count(graph: Graph, layer: WeightedLayer) -> int:
    """The places of a layer's output, those of all steps."""
    node = graph.nodes[layer.node]
    return node.op.places(graph.site(node)) * layer.steps


def taps(graph: Graph, layer: WeightedLayer, at: Places) -> Taps:
    """Of some places of a layer's output. What later steps read lies behind what the first one reads."""
    node, shape = graph.nodes[layer.node], graph.type(layer.source).shape
    if layer.steps == 1:
        return node.op.columns(shape, at)
    step, inside = np.divmod(at, node.op.places(graph.site(node)))
    found = node.op.columns(shape, inside)
    further = found.first + step[:, None] * prod(shape)
    return found._replace(first=np.where(found.first < 0, found.first, further))


def drawn(layer: WeightedLayer, count: int, seed: int) -> Places:
    """Of `count` places of a layer's output those that a sample is looked at, ascending."""
    if layer.places >= count:
        return np.arange(count)
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
