"""Faults that are planted for verdicts.py: wrong ranges of single tensors, and too few bits for
the weights of single layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from verdict_tasks import Task

from npuflow.quantise.config import Override, Quantize
from npuflow.tune.precision.problem import Harness
from npuflow.tune.quality import quality

SPOILT = 14.0                             # dB of the worst output below which a fault counts
BITS = (2, 3)                             # of weights
Span = tuple[float, float]


@dataclass(frozen=True)
class Fault:
    """`ranges`: multiples of the lower and the upper end, by value; `weights`: of one
    layer, and its name in the graph."""

    ranges: Mapping[str, Span] = field(default_factory=dict)
    weights: str = ""
    layer: str = ""
    bits: int = 0

    @property
    def overrides(self) -> tuple[Override, ...]:
        return (Override((self.layer,), weight_bits=self.bits),) if self.layer else ()

    @property
    def text(self) -> str:
        parts = [f"{v} x {a:g}" if a == b else f"{v} x {a:g} .. x {b:g}" for v, (a, b) in self.ranges.items()]
        return ", ".join(parts) or f"{self.bits} bits for {self.weights}"

    def applied(self, ranges: Mapping[str, Span]) -> dict[str, Span]:
        """The ranges that are wrong."""
        return {v: (ranges[v][0] * a, ranges[v][1] * b) for v, (a, b) in self.ranges.items() if v in ranges}


def faults(task: Task, harness: Harness, kind: str, count: int) -> list[Fault]:
    """Faults of a kind that spoil an output, spread over the network: "range": a quarter or 64 times as wide;
    "side": the larger end a tenth as far; "weight": too few bits. One that no output notices (a tensor of few
    values far from its ends) is no fault, and the next is taken.
    """
    made = list(_all(harness, kind))
    order = np.random.default_rng(7).permutation(len(made))
    found: list[Fault] = []
    for k in order:
        if _worst(task, harness, made[k]) < SPOILT:
            found.append(made[k])
        if len(found) == count:
            break
    return found


def _all(harness: Harness, kind: str) -> Iterator[Fault]:
    network = harness.network
    known: Sequence[list[str]] = [[v for v in group if v in harness.ranges] for group in network.groups]
    if kind == "range":
        yield from (Fault(dict.fromkeys(vs, (f, f))) for f in (0.25, 64.0) for vs in known if vs)
    elif kind == "side":
        for values in filter(None, known):
            low, high = harness.ranges[values[0]]
            yield Fault(dict.fromkeys(values, (1.0, 0.1) if high >= -low else (0.1, 1.0)))
    else:
        for bits in BITS:
            for one in network.weights:
                yield Fault(weights=one.value, layer=network.graph.nodes[one.node].outputs[0], bits=bits)


def _worst(task: Task, harness: Harness, fault: Fault) -> float:
    """dB of the worst output in the fake-quantised network."""
    network = harness.network
    table = network.table({**harness.ranges, **fault.applied(harness.ranges)})
    weights = {k: v for j in range(len(network.weights)) for k, v in harness.weight(j, False).items()}
    for one in network.weights:
        if one.value == fault.weights:
            weak = network.with_(scheme=Quantize(overrides=fault.overrides), weights={})
            weights.update(weak.coded(one))
    made = harness.fake.run(harness.judge.held, table, weights)
    return min(one.sqnr for one in quality(task.graph, harness.judge.truth, made))
