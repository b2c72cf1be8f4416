"""The layers whose weights are rounded by moments, and the power-of-two grid on
which their inputs are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from math import frexp

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.loops import times
from npuflow.ir.op import Node
from npuflow.place.place import NodePlacement
from npuflow.tune import tuned
from npuflow.tune.rounding.config import Counting

BITS = 14                                 # of a magnitude on the grid: sums of products stay exact in float64


@dataclass(frozen=True)
class WeightedLayer:
    """`node`: its index; `weight`, `source`, `bias`: value ids ("": no bias of its
    own that could take up a mean).
    `fraction`: bits behind the point of the grid; `places`: of the output that every sample is looked at;
    `parts`: blocks of input channels between which no products are taken; `steps`: of the loop that it is in,
    whose inputs lie one behind the other.
    """

    node: int
    name: str
    weight: str
    source: str
    bias: str
    fraction: int
    places: int
    parts: int = 1
    steps: int = 1


def layers(
    graph: Graph,
    placed: NodePlacement,
    table: Counting,
    ends: Mapping[str, tuple[float, float]],
    stated: Collection[str],
    log: Callable[[str], None],
) -> Iterator[WeightedLayer]:
    """Layers of the NPU in order, whatever their width. `ends`: the extrema of every tensor; `stated`:
    weights whose codes the model states."""
    readers = Counter(v for n in graph.nodes for v in n.inputs if v)
    for index, node in enumerate(graph.nodes):
        weight = _weight(graph, node)
        if weight is None or not placed.on_npu(index) or node.inputs[weight] in stated:
            continue
        why, found = _found(graph, index, weight, readers, table, ends)
        if found is None:
            log(f"{node.name}: rounded to the nearest: {why}")
            continue
        if found.parts > 1:
            log(
                f"{node.name}: moments in {found.parts} blocks of input channels: its products have more "
                f"terms than [moments] most_terms = {table.most_terms}; its scales stay as they are"
            )
        yield found


def _found(
    graph: Graph,
    index: int,
    weight: int,
    readers: Mapping[str, int],
    table: Counting,
    ends: Mapping[str, tuple[float, float]],
) -> tuple[str, WeightedLayer | None]:
    node = graph.nodes[index]
    site = graph.site(node)
    places, source = node.op.places(site), node.inputs[0]
    if not places:
        return "its operator has no columns", None
    if readers[node.inputs[weight]] > 1:
        return "several layers read its weight", None
    if source not in ends:
        return "calibration has not seen its input", None
    real = site.consts[weight]
    assert real is not None
    rows, terms = node.op.rows(real).shape
    groups = node.op.column_groups()
    taps = node.op.columns(graph.type(source).shape, np.zeros(1, np.int64))
    parts = _parts(terms, taps.channels, table.most_terms)
    enough = tuned.ROUND_PER_TERM * terms if groups > 1 else table.positions
    fit = tuned.ROUND_ELEMENTS // (terms * groups)
    steps = times(graph, node)
    count = min(places * steps, table.positions, max(tuned.ROUND_PLACES, min(enough, fit)))
    peak = max(abs(end) for end in ends[source])
    own = _bias(graph, node, weight + 1, readers, rows)
    fraction = BITS - max(frexp(peak)[1], BITS - 60) if peak > 0 else 0
    weights = node.inputs[weight]
    return "", WeightedLayer(index, node.name, weights, source, own, fraction, count, parts, steps)


def _parts(terms: int, channels: int, most: int) -> int:
    """The fewest equal blocks of input channels whose products have so many terms at most."""
    fits = (n for n in range(1, channels + 1) if channels % n == 0 and terms // n <= most)
    return next(fits, channels)


def _bias(graph: Graph, node: Node, at: int, readers: Mapping[str, int], rows: int) -> str:
    """The constant bias that this layer alone reads, one number per output."""
    if at >= len(node.inputs) or not node.inputs[at] or node.op.role(at) != "bias":
        return ""
    stored = graph.const(node.inputs[at])
    alone = stored is not None and readers[node.inputs[at]] == 1 and node.inputs[at] not in graph.outputs
    return node.inputs[at] if alone and stored is not None and stored.size == rows else ""


def _weight(graph: Graph, node: Node) -> int | None:
    """The input that is a constant weight."""
    places = (
        i
        for i, v in enumerate(node.inputs)
        if v and node.op.role(i) == "weight" and graph.const(v) is not None
    )
    return next(places, None)
