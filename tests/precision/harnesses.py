"""Small networks with ranges, ready to be judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.place.place import place
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Quantize
from npuflow.tune.judge import Judge
from npuflow.tune.precision.fakequant import FakeQuantNetwork
from npuflow.tune.precision.harness import Harness
from tests.networks.floats import Feed, Net, floats

BOTH = Numerics(weight_bits=(8, 16), activation_bits=(8, 16))
Span = tuple[float, float]


def mixed_net(seed: int = 3) -> Graph:
    """Convolutions, a residual, a Sigmoid gate and a pool: two outputs, the second behind a Sigmoid."""
    net = Net(seed, 1, 4, 8, 8)
    net.conv("c1", "x", 8, clip=(0.0, float("inf")))
    net.conv("c2", "c1", 8, depthwise=True)
    net.add("sum", OPS["add"](), "c1", "c2")
    net.conv("gate", "sum", 8, 1)
    net.add("open", OPS["sigmoid"](), "gate")
    net.add("gated", OPS["mul"](), "sum", "open")
    net.conv("y", "gated", 4)
    net.conv("heat", "gated", 2, 1)
    net.add("map", OPS["sigmoid"](), "heat")
    return net.graph("y", "map")


def extrema(graph: Graph, feeds: Sequence[Feed]) -> dict[str, Span]:
    found: dict[str, Span] = {}
    for feed in feeds:
        for name, array in floats(graph, feed).items():
            lo, hi = found.get(name, (0.0, 0.0))
            found[name] = min(lo, float(array.min())), max(hi, float(array.max()))
    return found


def feeds_of(graph: Graph, count: int, seed: int = 9) -> list[Feed]:
    rng = np.random.default_rng(seed)
    return [
        {i: rng.normal(size=graph.type(i).shape).astype(np.float32) for i in graph.inputs}
        for _ in range(count)
    ]


def harness_of(
    graph: Graph,
    changed: Mapping[str, Span] | None = None,
    scheme: Quantize | None = None,
    numerics: Numerics = BOTH,
    feeds: Sequence[Feed] | None = None,
    held: int = 8,
) -> Harness:
    """By the extrema of `feeds`, but for the ranges that are `changed`; the first `held` feeds judge."""
    known = list(feeds) if feeds is not None else feeds_of(graph, 24)
    wide = extrema(graph, known)
    placed, ranges = place(graph, Target(numerics=numerics)), {**wide, **(changed or {})}
    candidate = Candidate(graph, placed, scheme or Quantize(), numerics, ranges)
    judge = Judge(graph, known[:held], known[held:])
    return Harness(FakeQuantNetwork(candidate), wide, judge)
