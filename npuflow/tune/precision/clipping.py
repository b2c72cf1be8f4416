"""Clipping ranges of the default: extrema, unless they miss the budget and another method is clearly better.

A range that clips is right for the samples at hand and wrong for inputs that reach further, by many decibels;
what it gains is a decibel or two (docs/studies/0061-shifts.md). So it must be needed, and win on each of
several disjoint parts of the samples.

Every method is a table of a fake-quantised network, so that rating one is a forward pass. What it
would do to a tensor is then compared with the tensor's extrema by the error of the layers that read
it; where it is worse, the extrema stay. The effort is bounded by multiply-accumulates, never by the
clock: two machines try the same things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuflow.calibrators import Grid
from npuflow.ir.graph import Graph
from npuflow.ir.macs import graph_macs
from npuflow.ir.noise import EXACT, noise_decibels
from npuflow.strategies import NARROW, Budget
from npuflow.tune.precision.fakequant import Feed, Ranges
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.range_search import judged
from npuflow.tune.quality import Outputs, quality

Levels = npt.NDArray[np.float64]

EFFORT = 30e9                             # multiply-accumulates of all passes together
MARGIN = 2.0                              # dB that a method must gain over the extrema ...
PARTS = 4                                 # ... on each of so many disjoint parts of the samples
CLEARLY = 1.3                             # ratio of a reader's errors from which on clipping is taken to harm
PROBES = 4                                # samples on which a tensor's readers are run


@dataclass(frozen=True)
class Clipped:
    """Range and method of every tensor that was free, the dB of each method that was tried for the whole
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


def clip(
    harness: Harness, candidates: Mapping[str, Ranges], grids: Mapping[str, Grid], probes: int, budget: Budget
) -> Clipped:
    """`candidates`: by method, ranges of every tensor; the first method's are the extrema. `grids`: of the
    tensors whose range may be chosen here. `budget`: what the outputs are to reach; where they do, nothing is
    clipped.
    """
    network, extrema = harness.network, next(iter(candidates))
    pinned = unclippable(network.graph, network.groups)
    kept = {v for k in pinned for v in network.groups[k]}
    held = harness.judge.held[: _affordable(network.graph, len(candidates), probes)]
    wide = {v: candidates[extrema][v] for v in grids}
    made = _outputs(harness, held, wide)
    plain = levels = _levels(harness, made)
    rated, best, gained, ranges = {extrema: float(plain.mean())}, extrema, MARGIN, wide
    others = list(candidates)[1:]
    if budget.holds(quality(network.graph, [column[: len(held)] for column in harness.judge.truth], made)):
        others = []
    for method in others:
        tried = {v: span if v in kept else candidates[method][v] for v, span in wide.items()}
        found = _levels(harness, _outputs(harness, held, tried))
        rated[method] = float(found.mean())
        if (gain := float((found - plain).min())) > gained:
            best, gained, ranges, levels = method, gain, tried, found
    worse = _worse(harness, ranges, wide, grids, held[:PROBES]) if best != extrema else set()
    if worse:
        ranges = {v: wide[v] if v in worse else span for v, span in ranges.items()}
        levels = _levels(harness, _outputs(harness, held, ranges))
        if float((levels - plain).min()) <= MARGIN:
            best, ranges, levels = extrema, wide, plain
    names = {v: extrema if v in worse or v in kept else best for v in ranges}
    return Clipped(ranges, names, rated, float(levels.mean()))


def _outputs(harness: Harness, held: Sequence[Feed], ranges: Ranges) -> Outputs:
    """Of the fake-quantised network, weights quantised as the recipe says."""
    weights = {
        v: array
        for j in range(len(harness.network.weights))
        for v, array in harness.weight(j, NARROW).items()
    }
    return harness.fake.run(held, harness.network.table({**harness.ranges, **ranges}), weights)


def _levels(harness: Harness, made: Outputs) -> Levels:
    """[parts]: mean dB over the samples of a part, of the worst output."""
    levels = noise_decibels(harness.judge.noise(made))
    parts = np.array_split(levels, min(PARTS, len(levels)))
    return np.array([some.mean(0).min(initial=EXACT) for some in parts])


def _worse(
    harness: Harness, chosen: Ranges, extrema: Ranges, grids: Mapping[str, Grid], held: Sequence[Feed]
) -> set[str]:
    """Tensors whose readers make a clearly larger error than with the extrema."""
    spans = {v: [extrema[v], span] for v, span in chosen.items() if span != extrema[v]}
    losses = judged(harness.network.graph, harness.network.candidate.placed.on_npu, spans, grids, held)
    return {v for v, found in losses.items() if found[:, 1].sum() > CLEARLY * found[:, 0].sum()}


def _affordable(graph: Graph, methods: int, probes: int) -> int:
    """Samples that every method is rated on."""
    return max(2, min(probes, int(EFFORT / (methods * max(graph_macs(graph), 1)))))
