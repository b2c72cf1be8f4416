"""Finds values whose channels can only be scaled together, with their layers, or the obstacle."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from math import inf

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.types import Array
from npuflow.quantise.scales import ScaleGroups

Real = npt.NDArray[np.float64]
CHANNEL = 1                               # the dimension of channels in every value that is scaled


@dataclass(frozen=True)
class LinearLayer:
    """A node that is linear in its first input, with a constant weight and a place for a bias."""

    node: Node
    # of the weight; the input channels of a group lie along the other of 0 and 1
    out_axis: int
    group: int

    def rows(self, weight: Array) -> Array:
        """The weight with its output channels first."""
        return weight if self.out_axis == 0 else np.moveaxis(weight, self.out_axis, 0)

    def channels(self, channels: int, rows: int) -> npt.NDArray[np.int64]:
        """[output channel, index]: the input channel behind every weight."""
        per = channels // self.group
        return np.arange(rows)[:, None] // (rows // self.group) * per + np.arange(per)[None]


@dataclass
class ChannelGroup:
    """Values tied together. `obstacle`: why no channel of them can be scaled ("" if they can)."""

    values: list[str] = field(default_factory=list)
    makers: list[LinearLayer] = field(default_factory=list)
    readers: list[LinearLayer] = field(default_factory=list)
    obstacle: str = ""

    @property
    def name(self) -> str:
        sides = [
            ", ".join(dict.fromkeys(layer.node.name for layer in side))
            for side in (self.makers, self.readers)
        ]
        return " -> ".join(sides)

    def stop(self, why: str) -> None:
        self.obstacle = self.obstacle or why


def linear(graph: Graph, node: Node) -> LinearLayer | None:
    """The node as a layer whose channels can be scaled, or None."""
    if len(node.inputs) < 2 or node.op.role(1) != "weight" or node.op.role(2) != "bias":
        return None
    site = graph.site(node)
    axis, group = node.op.channel_axis(site, 1), node.op.column_groups()
    if site.consts[1] is None or axis not in (0, 1) or (axis == 1 and group > 1):
        return None
    if (site.present(2) and site.consts[2] is None) or node.op.input_channels() != CHANNEL:
        return None
    read, made = site.shape(1)[1 - axis] * group, site.shape(1)[axis]
    if len(site.shape(0)) <= CHANNEL or (site.shape(0)[CHANNEL], site.out_shape[CHANNEL]) != (read, made):
        return None
    return LinearLayer(node, axis, group)


def groups(graph: Graph, numerics: Numerics, seen: Container[str] = ()) -> list[ChannelGroup]:
    """Every set of values between layers, in the order of the graph. `seen`: values whose channels' ends are
    known: a clip that the target has for all channels alike is no obstacle there."""
    layers = {n.outputs: linear(graph, n) for n in graph.nodes}
    probe = Probe(graph)
    passing = {n.outputs: layers[n.outputs] is None and probe.homogeneous(n) for n in graph.nodes}
    ties, found = ScaleGroups(), dict[str, ChannelGroup]()
    for node in graph.nodes:
        if passing[node.outputs]:
            ties.join(_activations(graph, node, also=node.outputs))

    def group(value_id: str) -> ChannelGroup:
        return found.setdefault(ties.find(value_id), ChannelGroup())

    for value_id in graph.inputs:
        group(value_id).stop("it is an input of the network")
    for node in graph.nodes:
        layer = layers[node.outputs]
        for value_id in _activations(graph, node, also=()):
            if layer is not None and value_id == node.inputs[0]:
                group(value_id).readers.append(layer)
            elif not passing[node.outputs]:
                group(value_id).stop(f"{node.name} reads it, and it cannot take channels of different scales")
        for value_id in (o for o in node.outputs if o):
            group(value_id).values.append(value_id)
            if layer is not None:
                group(value_id).makers.append(layer)
                if not numerics.per_channel_clamp and value_id not in seen and bounded(node):
                    group(value_id).stop(f"{node.name} clips, and the target clamps all channels alike")
            elif not passing[node.outputs]:
                group(value_id).stop(
                    f"{node.name} produces it, and it cannot take channels of different scales"
                )
            if value_id in graph.outputs:
                group(value_id).stop("it is an output of the network")
    return [g for g in found.values() if g.makers and g.readers]


def _activations(graph: Graph, node: Node, also: tuple[str, ...]) -> list[str]:
    return [v for v in dict.fromkeys((*node.inputs, *also)) if v and graph.const(v) is None]


def bounded(node: Node) -> bool:
    """Whether a fused clip has a bound that moves with its channel."""
    bounds = np.concatenate([np.ravel(b) for b in node.op.clip or ()] or [np.zeros(1)])
    return bool(np.any((bounds != 0) & (np.abs(bounds) < inf)))


class Probe:
    """Tries operators on numbers of many sizes; equal operators on equal types once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.known: dict[object, bool] = {}

    def homogeneous(self, node: Node) -> bool:
        """Whether scaling channels of all activation inputs scales those of all outputs
        alike: tried out, not looked up.

        Linear operators and those with corners at zero do (Relu, pooling, addition);
        added constants and curves do not.
        """
        values = self.graph.values
        key = (node.op, *((values[i].type, values[i].const) if i else None for i in node.inputs))
        if key not in self.known:
            self.known[key] = self._tried(node)
        return self.known[key]

    def _tried(self, node: Node) -> bool:
        site = self.graph.site(node)
        real = [v.type for v, c in zip(site.inputs, site.consts, strict=True) if v is not None and c is None]
        kinds = [*real, *(v.type for v in site.outputs)]
        if not real or not all(
            k.is_static and len(k.shape) > CHANNEL and k.dtype == "float32" for k in kinds
        ):
            return False
        if len({k.shape[CHANNEL] for k in kinds}) > 1:
            return False
        rng = np.random.default_rng(0)
        scale = np.exp(rng.uniform(-3, 3, size=kinds[0].shape[CHANNEL]))
        plain: list[Array | None] = list(site.consts)
        moved: list[Array | None] = list(site.consts)
        for i, value in enumerate(site.inputs):
            if value is not None and site.consts[i] is None:
                x = rng.normal(size=value.type.shape) * np.exp(rng.uniform(-5, 5, size=value.type.shape))
                plain[i], moved[i] = x, _times(x, scale)
        try:
            with np.errstate(all="ignore"):
                pairs = list(zip(node.op.clipped(*plain), node.op.clipped(*moved), strict=True))
        except (NotImplementedError, ValueError, TypeError):     # no float semantics in numpy
            return False
        return all(np.allclose(_times(a, scale), b, rtol=1e-5, atol=0.0) for a, b in pairs)


def _times(array: Array, scale: Real) -> Array:
    return np.asarray(array * scale.reshape([-1 if d == CHANNEL else 1 for d in range(array.ndim)]))
