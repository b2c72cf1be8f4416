"""Clipping ranges of the default: the method that serves the network's outputs best, tensor
by tensor held against min-max.

Every method is a table of a fake-quantised network, so that rating one is a forward pass. What it
would do to a tensor is then compared with the tensor's extrema by the error of the layers that read
it; where it is worse, the extrema stay. The effort is bounded by multiply-accumulates, never by the
clock: two machines try the same things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npuflow.calibrators import Grid
from npuflow.ir.graph import Graph
from npuflow.ir.macs import graph_macs
from npuflow.ir.noise import noise_decibels
from npuflow.strategies import NARROW
from npuflow.tune.precision.fakequant import Feed, Ranges, Table
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.range_search import judged

EFFORT = 30e9                             # multiply-accumulates of all passes together
MARGIN = 0.5                              # dB by which a method must beat those named before it
CLEARLY = 1.3                             # ratio of a reader's errors from which on clipping is taken to harm
PROBES = 4                                # samples on which a tensor's readers are run


@dataclass(frozen=True)
class Clipped:
    """Range and method of every tensor that was free, the dB of each method for the whole
    network, and of what was taken."""

    ranges: Ranges
    methods: Mapping[str, str]
    rated: Mapping[str, float]
    taken: float


def unclippable(graph: Graph, groups: Sequence[Sequence[str]]) -> set[int]:
    """Groups that must keep their extrema: outputs of the network and of bounded functions are among them."""
    producer, outputs = graph.producer(), set(graph.outputs)

    def keeps(value_id: str) -> bool:
        return value_id in outputs or (value_id in producer and producer[value_id].op.bounded is not None)

    return {k for k, group in enumerate(groups) if any(map(keeps, group))}


def clip(rig: Harness, candidates: Mapping[str, Ranges], grids: Mapping[str, Grid], probes: int) -> Clipped:
    """`candidates`: by method, ranges of every tensor; the first method's are the extrema. `grids`: of the
    tensors whose range may be chosen here.
    """
    network, methods = rig.network, list(candidates)
    extrema = methods[0]
    pinned = unclippable(network.graph, network.groups)
    kept = {v for k in pinned for v in network.groups[k]}
    held = rig.judge.held[: _affordable(network.graph, len(methods), probes)]
    free = {
        m: {v: (candidates[extrema] if v in kept else found)[v] for v in grids}
        for m, found in candidates.items()
    }
    rated = {m: _score(rig, held, network.table({**rig.ranges, **free[m]})) for m in methods}
    best = methods[0]
    for method in methods[1:]:
        if rated[method] > rated[best] + MARGIN:
            best = method
    worse = _worse(rig, free[best], candidates[extrema], grids, held[:PROBES]) if best != extrema else set()
    ranges = {v: candidates[extrema][v] if v in worse else span for v, span in free[best].items()}
    names = {v: extrema if v in worse or v in kept else best for v in ranges}
    return Clipped(ranges, names, rated, _score(rig, held, network.table({**rig.ranges, **ranges})))


def _score(rig: Harness, held: Sequence[Feed], table: Table) -> float:
    """Mean dB over samples, of the worst output, weights quantised as the recipe says."""
    weights = {
        v: array for j in range(len(rig.network.weights)) for v, array in rig.weight(j, NARROW).items()
    }
    noise = rig.judge.noise(rig.fake.run(held, table, weights))
    return float(noise_decibels(noise).mean(0).min(initial=200.0))


def _worse(
    rig: Harness, chosen: Ranges, extrema: Ranges, grids: Mapping[str, Grid], held: Sequence[Feed]
) -> set[str]:
    """Tensors whose readers make a clearly larger error than with the extrema."""
    spans = {v: [extrema[v], span] for v, span in chosen.items() if span != extrema[v]}
    losses = judged(rig.network.graph, rig.network.candidate.placed.on_npu, spans, grids, held)
    return {v for v, found in losses.items() if found[:, 1].sum() > CLEARLY * found[:, 0].sum()}


def _affordable(graph: Graph, methods: int, probes: int) -> int:
    """Samples that every method is rated on."""
    return max(2, min(probes, int(EFFORT / (methods * max(graph_macs(graph), 1)))))
