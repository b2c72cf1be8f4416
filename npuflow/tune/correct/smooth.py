"""Migrates scale from large channels of an activation to the weights that read them.
Channels are divided by a number, which the weights are multiplied by. Exact in float.

Source: G. Xiao, J. Lin, M. Seznec, H. Wu, J. Demouth, S. Han, "SmoothQuant: accurate and efficient
post-training quantization for large language models", 2023. Here the division must fold into constants
above the activation (factor and addend of a normalisation, weight of a layer, also through attention); alpha
is chosen layer by layer, by the error of the layer's own products in the recipe's integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Numerics
from npuflow.ir.codes import decode, encode
from npuflow.ir.graph import Graph, prune
from npuflow.ir.op import Node
from npuflow.ir.types import Array
from npuflow.place.names import names_of
from npuflow.place.place import op_name
from npuflow.quantise.config import Quantize, activation_grid
from npuflow.quantise.types import activation_type, weight_type
from npuflow.run.floats import FloatRun
from npuflow.tune import tuned
from npuflow.tune.correct.fold_back import LARGEST, Edits, Fold, Refused
from npuflow.tune.walk import Feed

Real = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SmoothedLayer:
    """A layer with a constant weight, and the axis of the weight that is summed over."""

    node: Node
    axis: int


@dataclass(frozen=True)
class SmoothedActivation:
    """An activation, the dimension of its channels, and all layers that read it. `obstacle`: why its channels
    cannot be scaled."""

    value: str
    channel: int
    readers: tuple[SmoothedLayer, ...]
    obstacle: str = ""

    @property
    def name(self) -> str:
        return ", ".join(one.node.name for one in self.readers)


@dataclass(frozen=True)
class Smoothed:
    """The changed network; per place what its channels were divided by (None: nothing), and alpha."""

    graph: Graph
    places: tuple[SmoothedActivation, ...]
    scales: tuple[Real | None, ...]
    alphas: tuple[float | None, ...]


def places(graph: Graph) -> Iterator[SmoothedActivation]:
    """Every activation that a layer with a constant weight reads, in the order of the graph."""
    readers = graph.consumers()
    done: set[str] = set()
    for node in graph.nodes:
        one = _reader(graph, node)
        if one is None or node.inputs[0] in done:
            continue
        value = node.inputs[0]
        done.add(value)
        channel = node.op.group_axis(graph.site(node), 0)
        found = [_reader(graph, other) for other in readers[value]]
        mine = tuple(other for other in found if other is not None)
        alike = all(other.node.op.group_axis(graph.site(other.node), 0) == channel for other in mine)
        assert channel is not None
        obstacle = "" if len(mine) == len(found) and alike else "other operators read it, too"
        if graph.type(value).size > LARGEST:
            obstacle = obstacle or "it is too large"
        yield SmoothedActivation(value, channel, mine, obstacle)


def _reader(graph: Graph, node: Node) -> SmoothedLayer | None:
    """A layer whose products have one term for every channel of its input."""
    if len(node.inputs) < 2 or node.op.role(1) != "weight" or graph.const(node.inputs[1]) is None:
        return None
    site = graph.site(node)
    axis, weight = node.op.group_axis(site, 1), site.consts[1]
    if axis is None or weight is None or node.op.rows(weight).shape[1] != weight.shape[axis]:
        return None
    return SmoothedLayer(node, axis)


def smooth(
    graph: Graph, quantize: Quantize, numerics: Numerics, feeds: Sequence[Feed], limit: float
) -> Smoothed:
    """Choose alpha for every place, and change the network where that brings its layers closer."""
    found = list(places(graph))
    open_places = [i for i, one in enumerate(found) if not one.obstacle]
    columns = _columns(graph, [found[i] for i in open_places], feeds[: tuned.SMOOTH_SAMPLES])
    scales: list[Real | None] = [None] * len(found)
    alphas: list[float | None] = [None] * len(found)
    for i in open_places:
        one = _now(graph, found[i])
        try:
            migrated(graph, one, np.ones(graph.type(one.value).shape[one.channel]))
            best = _best(graph, one, columns[one.value], quantize, numerics, limit)
            if best is not None:
                # where elements of one channel have numbers of their own, ones hide what cannot be moved
                graph = migrated(graph, one, best[1])
                alphas[i], scales[i] = best
        except Refused as why:
            found[i] = replace(one, obstacle=str(why))
    return Smoothed(prune(graph), tuple(found), tuple(scales), tuple(alphas))


def _now(graph: Graph, place: SmoothedActivation) -> SmoothedActivation:
    """The same with the nodes as they have become."""
    makers = graph.producer()
    return replace(
        place, readers=tuple(replace(one, node=makers[one.node.outputs[0]]) for one in place.readers)
    )


def migrated(graph: Graph, place: SmoothedActivation, scale: Real) -> Graph:
    """The same network with the channels of an activation divided by `scale`."""
    shape = graph.type(place.value).shape
    by = scale.reshape([-1 if d == place.channel else 1 for d in range(len(shape))])
    counts = {name: len(nodes) for name, nodes in graph.consumers().items()}
    fold = Fold(graph, graph.producer(), counts)
    fold.up(place.value, np.ascontiguousarray(np.broadcast_to(by, shape)), len(place.readers))
    graph = fold.edits.applied(graph)
    more = Edits()
    for one in place.readers:
        weight = graph.const(one.node.inputs[1])
        assert weight is not None
        along = [-1 if d == one.axis else 1 for d in range(weight.ndim)]
        more.consts[one.node.outputs[0], 1] = weight.astype(np.float64) * scale.reshape(along)
    return more.applied(graph)


def _columns(graph: Graph, wanted: Sequence[SmoothedActivation], feeds: Sequence[Feed]) -> dict[str, Real]:
    """Of every activation some places of some samples, [places, channels], the extrema of every channel among
    them."""
    network = FloatRun.of(graph, [one.value for one in wanted])
    parts: dict[str, list[Array]] = {one.value: [] for one in wanted}
    for feed in feeds:
        values = {**feed, **network.run(feed)}
        for one in wanted:
            array = values[one.value]
            rows = np.moveaxis(array, one.channel, -1).reshape(-1, array.shape[one.channel])
            step = max(1, len(rows) // tuned.SMOOTH_ROWS)
            parts[one.value] += [rows[::step], rows.max(0)[None], rows.min(0)[None]]
    return {name: np.concatenate(some).astype(np.float64) for name, some in parts.items()}


def _best(
    graph: Graph, place: SmoothedActivation, x: Real, quantize: Quantize, numerics: Numerics, limit: float
) -> tuple[float, Real] | None:
    """Alpha and the numbers to divide by, where the layers' products come closer with them."""
    weights = [graph.const(one.node.inputs[1]) for one in place.readers]
    moved = [
        np.moveaxis(np.asarray(w, np.float64), r.axis, 0) for w, r in zip(weights, place.readers, strict=True)
    ]
    reach = np.max([np.abs(w).reshape(len(w), -1).max(1) for w in moved], axis=0)
    peak = np.abs(x).max(0)
    alive = (peak > 0) & (reach > 0)
    if not alive.any():
        return None

    def error(scale: Real) -> float:
        return sum(_error(graph, one, x, scale, quantize, numerics) for one in place.readers)

    plain = error(np.ones_like(peak))
    best: tuple[float, float, Real] | None = None
    for alpha in tuned.SMOOTH_ALPHAS:
        scale = np.where(alive, peak, 1.0) ** alpha / np.where(alive, reach, 1.0) ** (1 - alpha)
        scale = np.where(alive, scale / np.exp(np.log(scale[alive]).mean()), 1.0)
        scale = np.clip(scale, 1 / limit, limit)
        found = error(scale)
        if best is None or found < best[0]:
            best = found, alpha, scale
    if best is None or best[0] > tuned.SMOOTH_ENOUGH * plain:
        return None
    return best[1], best[2]


def _error(
    graph: Graph, reader: SmoothedLayer, x: Real, scale: Real, quantize: Quantize, numerics: Numerics
) -> float:
    """Noise over signal of a layer's products, both operands as their codes give them back."""
    node = reader.node
    site = graph.site(node)
    scheme = quantize.weights_of(names_of(node), op_name(node))
    stored = site.consts[1]
    assert stored is not None
    along = [-1 if d == reader.axis else 1 for d in range(stored.ndim)]
    weight = stored.astype(np.float64) * scale.reshape(along)
    axis, inner = node.op.channel_axis(site, 1), node.op.group_axis(site, 1)
    quant = weight_type(weight, axis, scheme, numerics, inner)
    rows = node.op.rows(decode(encode(weight, quant), quant).astype(np.float64))
    divided = x / scale
    kind = activation_type(
        float(divided.min()), float(divided.max()), activation_grid(quantize.activations, numerics)
    )
    made = decode(encode(divided, kind), kind).astype(np.float64) @ rows.T
    want = x @ node.op.rows(stored.astype(np.float64)).T
    return float(np.square(made - want).sum() / max(float(np.square(want).sum()), 1e-300))
