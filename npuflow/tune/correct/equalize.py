"""Cross-layer equalisation: channels between layers are scaled so that none needs a
range of its own. Exact in float.

Source: M. Nagel, M. van Baalen, T. Blankevoort, M. Welling, "Data-free quantization through weight
equalization and bias correction", 2019, section 4.1. Here a scale reaches all values that operators tie
together (a chain of residual additions, say), and the bounds of a fused clip follow their channel, so that
the network's function stays what it was. Where a target clamps all channels alike the bounds stay, and with
them the channels that reach one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph, constant, prune
from npuflow.ir.op import Bound
from npuflow.ir.types import Array
from npuflow.tune import tuned
from npuflow.tune.correct.groups import ChannelGroup, LinearLayer, bounded, groups

Real = npt.NDArray[np.float64]
Change = Callable[[Real], Real]
TINY = 1e-300


@dataclass(frozen=True)
class Equalised:
    """The scaled network; per group of values what its channels were divided by (None: obstacle)."""

    graph: Graph
    groups: tuple[ChannelGroup, ...]
    scales: tuple[Real | None, ...]


def equalise(
    graph: Graph,
    numerics: Numerics,
    rounds: int,
    limit: float,
    values: Mapping[str, Real] = MappingProxyType({}),
    ends: Mapping[str, tuple[Real, Real]] = MappingProxyType({}),
) -> Equalised:
    """Scale every group of values until the largest weights that make a channel and that read it are equal.

    Groups are gone through one after the other, `rounds` times or until scales settle; no scale
    passes `limit` or 1 / `limit`. `values`: by value the largest magnitude of each channel. Where it is
    known, a channel takes as much of the range of the weights that read it as of the range of the values
    themselves or of the weights that make it, whichever is more. `ends`: by value the least and greatest
    number of each channel. Where they are known and the target clamps all channels alike, a clip stays as it
    is: no channel is scaled up so far that it would reach a bound, and none is scaled that reaches one.
    """
    found = groups(graph, numerics, ends)
    peaks = {}
    for group in found:
        for layer in (*group.makers, *group.readers):
            weight = graph.const(layer.node.inputs[1])
            assert weight is not None
            rows = np.abs(layer.rows(weight.astype(np.float64)))
            peaks[layer.node.outputs[0]] = rows.reshape(*rows.shape[:2], -1).max(2)
    free = [i for i, g in enumerate(found) if not g.obstacle]
    scales = {i: np.ones(len(peaks[found[i].makers[0].node.outputs[0]])) for i in free}
    stay = not numerics.per_channel_clamp
    held = {i: _held(found[i], ends) for i in free if stay}
    for _ in range(rounds):
        largest = 0.0
        for i in free:
            own = [values[v] / scales[i] for v in found[i].values if v in values]
            wanted = np.clip(scales[i] * _step(found[i], peaks, own), 1 / limit, limit)
            if stay:
                wanted = np.where(held[i] >= 1.0, 1.0, np.maximum(wanted, held[i]))
            step = wanted / scales[i]
            scales[i] = scales[i] * step
            _scale(found[i], peaks, step)
            largest = max(largest, float(np.abs(np.log(step)).max()))
        if largest < tuned.EQUALIZE_SETTLED:
            break
    for i in free:
        graph = scaled(graph, found[i], scales[i], not stay)
    return Equalised(prune(graph), tuple(found), tuple(scales.get(i) for i in range(len(found))))


def _step(group: ChannelGroup, peaks: dict[str, Real], values: Sequence[Real]) -> Real:
    """What to divide each channel by, so that the largest weights before and after it become equal; with
    `values`, their shares of the tensors' ranges."""
    def share(one: Real) -> Real:
        return one / max(float(one.max()), TINY) if values else one

    before = [share(peaks[m.node.outputs[0]].max(1)) for m in group.makers]
    made = np.max([*before, *map(share, values)], axis=0)
    read = np.zeros_like(made)
    for reader in group.readers:
        held = share(peaks[reader.node.outputs[0]])
        np.maximum.at(read, reader.channels(len(read), len(held)), held)
    alive = (made > 0) & (read > 0)
    return np.where(alive, np.sqrt(made / np.where(alive, read, 1.0)), 1.0)


def _scale(group: ChannelGroup, peaks: dict[str, Real], step: Real) -> None:
    for maker in group.makers:
        peaks[maker.node.outputs[0]] = peaks[maker.node.outputs[0]] / step[:, None]
    for reader in group.readers:
        held = peaks[reader.node.outputs[0]]
        peaks[reader.node.outputs[0]] = held * step[reader.channels(len(step), len(held))]


def _held(group: ChannelGroup, ends: Mapping[str, tuple[Real, Real]]) -> Real | float:
    """By channel the least scale with which it stays off the bounds of clips that do not move; 1 and more: it
    reaches them as it is."""
    least: Real | float = 0.0
    for node in (maker.node for maker in group.makers if bounded(maker.node)):
        for bound, end in zip(node.op.clip or (), ends[node.outputs[0]], strict=True):
            limit = np.asarray(bound, np.float64)
            used = np.divide(end * tuned.EQUALIZE_ROOM, limit, out=np.zeros_like(end), where=limit != 0.0)
            least = np.maximum(least, used)
    return least


def scaled(graph: Graph, group: ChannelGroup, scale: Real, clips: bool = True) -> Graph:
    """The same network with the channels of a group's values divided by `scale`. `clips`: so are the bounds
    of fused clips; else no channel reaches them, or its scale is 1."""
    edit = Edit(graph)
    for layer in group.makers:
        shape = [-1 if d == layer.out_axis else 1 for d in range(edit.const(layer, 1).ndim)]
        edit.put(layer, 1, edit.const(layer, 1) / scale.reshape(shape))
        if edit.has(layer, 2):
            edit.put(layer, 2, np.broadcast_to(edit.const(layer, 2).reshape(-1), scale.shape) / scale)
        if clips:
            edit.clip(layer, lambda bound: bound / scale)
    for layer in group.readers:
        rows = layer.rows(edit.const(layer, 1))
        places = layer.channels(len(scale), len(rows))
        factor = scale[places].reshape(*places.shape, *(1,) * (rows.ndim - 2))
        edit.put(layer, 1, np.moveaxis(rows * factor, 0, layer.out_axis))
    return edit.graph()


class Edit:
    """New constants and clips for some layers of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.values, self.consts = dict(graph.values), dict(graph.consts)
        self.nodes = {n.outputs[0]: n for n in graph.nodes}

    def has(self, layer: LinearLayer, index: int) -> bool:
        inputs = self.nodes[layer.node.outputs[0]].inputs
        return index < len(inputs) and bool(inputs[index])

    def const(self, layer: LinearLayer, index: int) -> Real:
        """The layer's constant as it is by now."""
        digest = self.values[self.nodes[layer.node.outputs[0]].inputs[index]].const
        assert digest is not None
        return self.consts[digest].astype(np.float64)

    def put(self, layer: LinearLayer, index: int, array: Array) -> None:
        """A constant of the layer's own: others may share the one it had."""
        out = layer.node.outputs[0]
        name = f"{out}:{'weight' if index == 1 else 'bias'}"
        self.values[name], stored = constant(name, array.astype(np.float32))
        self.consts.update(stored)
        node = self.nodes[out]
        inputs = [*node.inputs, *("",) * (index + 1 - len(node.inputs))]
        inputs[index] = name
        self.nodes[out] = replace(node, inputs=tuple(inputs))

    def clip(self, layer: LinearLayer, change: Change) -> None:
        """Bounds of the fused clip, changed channel by channel; those that stay alike in
        all channels stay one number."""
        node = self.nodes[layer.node.outputs[0]]
        if node.op.clip is not None:
            lo, hi = (_moved(bound, change) for bound in node.op.clip)
            self.nodes[layer.node.outputs[0]] = replace(node, op=node.op.with_(clip=(lo, hi)))

    def graph(self) -> Graph:
        nodes = tuple(self.nodes[n.outputs[0]] for n in self.source.nodes)
        return self.source.replaced(
            nodes=nodes, values=MappingProxyType(self.values), consts=MappingProxyType(self.consts)
        )


def _moved(bound: Bound, change: Change) -> Bound:
    found = np.asarray(change(np.asarray(bound, np.float64)), np.float64).ravel()
    return float(found[0]) if np.all(found == found[0]) else tuple(found.tolist())
