"""What layers read, sample by sample: columns of their inputs at some places, in fixed point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt

from npuflow.engine.calibrate.observe import session
from npuflow.engine.rounding.layers import WeightedLayer
from npuflow.engine.to_onnx import export_model
from npuflow.ir.graph import Graph
from npuflow.ir.types import Array
from npuflow.ir.windows import Taps

Codes = npt.NDArray[np.int16]             # [groups, places, terms]


@dataclass
class ColumnObserver:
    """The float network with every input of a layer as an output: one pass a sample for all layers."""

    graph: Graph
    layers: Sequence[WeightedLayer]

    def __post_init__(self) -> None:
        self.made = list(
            dict.fromkeys(one.source for one in self.layers if one.source not in self.graph.inputs)
        )
        self.session = session(export_model(self.graph, self.made)) if self.made else None
        self.fed = [i.name for i in self.session.get_inputs()] if self.session is not None else []

    def columns(self, feed: Mapping[str, Array]) -> list[Codes]:
        """Of every layer."""
        known = dict(feed)
        if self.session is not None:
            found = self.session.run(self.made, {name: feed[name] for name in self.fed})
            known.update(zip(self.made, found, strict=True))
        seed = seed_of(self.graph, feed)
        return [columns(self.graph, one, known[one.source], seed) for one in self.layers]


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
    if layer.places >= count:
        return np.arange(count)
    rng = np.random.default_rng((seed, layer.node))
    return np.asarray(np.sort(rng.choice(count, layer.places, replace=False, shuffle=False)))


def gathered(taps: Taps, groups: int, source: Array, fraction: int, parts: int = 1) -> Codes:
    """The columns of an input, on a power-of-two grid; what lies beyond it (infinities, too) becomes its end,
    and NaN zero. `parts`: blocks of channels that every group is cut into, each a group of the result."""
    from npuflow.engine.rounding.kernels import gather

    places, window = taps.first.shape
    codes = np.empty((groups * parts, places, taps.channels // parts * window), np.int16)
    flat = np.ascontiguousarray(source, np.float32).reshape(-1)
    gather(flat, taps.first, taps.step, np.float32(2.0**fraction), codes)
    return codes
