"""Sums in local memory are written over the operand that nobody reads afterwards, and over no other."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from npuflow.base.errors import TargetError
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.program.container import Program
from npuflow.schedule.frame import Frame, Topology
from npuflow.search.pinned import Pins
from npuflow.search.plan import TilingPlan, plan_network
from tests.networks import random_groups, random_networks
from tests.networks.harness import SMALL, check_exact, machine
from tests.networks.small import Builder
from tests.schedule.test_joined import finished
from tests.tiers import tiered

SHAPE, RELU6 = (1, 8, 12, 10), (0.0, 6.0)
VALUE = 8 * 12 * 10                       # bytes of a value
# room for two values, tiles and weights
NARROW = replace(SMALL, memory=replace(SMALL.memory, local_bytes=3 * VALUE, external_bandwidth=1.0))
ROOMY = replace(SMALL, memory=replace(SMALL.memory, local_bytes=1 << 14))
SHARD = 50


def block(b: Builder, x: str, *, late: bool = False) -> str:
    """A residual block. `late`: its input is read once more, behind the sum."""
    main = b.conv(b.conv(x, 8, 3, depthwise=True, clip=RELU6), 8, 1)
    y = b.add(OPS["add"](clip=RELU6), main, x)
    return b.add(OPS["add"](clip=RELU6), b.conv(y, 8, 1), x) if late else y


def over(graph: Graph, plan: TilingPlan, target: Target) -> dict[str, str]:
    """Values of a plan that lie where others did, and the values that have these buffers."""
    topology = Topology(graph, machine(target), target.numerics)
    frames = [Frame(topology, g, frozenset(plan.kept)) for g in plan.groups]
    return {v: part.value for f in frames for v, part in f.joins.items() if part.over}


def exact(b: Builder, y: str, target: Target) -> tuple[Graph, TilingPlan, Program]:
    graph, feed = finished(b, (y,), target)
    plan = plan_network(graph, machine(target), target.numerics)
    return graph, plan, check_exact(graph, feed, target, plan)


def test_a_sum_lies_where_its_operand_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks one after the other share one buffer for their input and all sums; the plan moves fewer bytes
    and takes fewer cycles than one with a buffer for each."""
    b = Builder()
    x = b.conv(b.input("x", (1, 4, 12, 10)), 8, 1, clip=RELU6)
    for _ in range(3):
        x = block(b, x)
    y = b.conv(x, 4, 1)
    graph, plan, program = exact(b, y, NARROW)
    assert len(over(graph, plan, NARROW)) == 3
    assert program.meta["plan"]["cycles"] == pytest.approx(plan.cycles)
    monkeypatch.setattr(Topology, "makes_in_place", False)
    apart = plan_network(graph, machine(NARROW), NARROW.numerics)
    assert plan.cycles < apart.cycles and plan.bytes < apart.bytes


def test_what_is_read_behind_the_sum_stays() -> None:
    b = Builder()
    x = b.conv(b.input("x", (1, 4, 12, 10)), 8, 1, clip=RELU6)
    graph, plan, _ = exact(b, b.conv(block(b, x, late=True), 4, 1), SMALL)
    first = next(n.outputs[0] for n in graph.nodes if n.op.sums)
    assert first not in over(graph, plan, SMALL)


def test_what_a_later_group_reads_stays() -> None:
    """A layer that comes before the sum in the network may run in a group behind it."""
    b = Builder()
    x = b.conv(b.input("x", (1, 4, 12, 10)), 8, 1, clip=RELU6)
    first = b.conv(x, 8, 1, clip=RELU6)
    main, side = b.conv(first, 8, 1), b.conv(x, 8, 3, clip=RELU6)
    y = b.add(OPS["add"](clip=RELU6), main, x)
    graph, feed = finished(b, (b.add(OPS["add"](), b.conv(y, 8, 1), side),), ROOMY)
    names = [n.name for n in graph.nodes if not {x, first, main}.isdisjoint(n.outputs)]
    pins = Pins(keep=(x, y), groups=(tuple(names),))
    plan = plan_network(graph, machine(ROOMY), ROOMY.numerics, pins=pins)
    behind = next(n for g in plan.groups[1:] for n in g.nodes if side in graph.nodes[n].outputs)
    assert set(plan.kept) >= {x, y} and behind < plan.groups[0].nodes[-1]
    check_exact(graph, feed, ROOMY, plan)
    assert x not in over(graph, plan, ROOMY).values()


def test_an_operand_that_is_repeated_stays() -> None:
    """Of a broadcast every tile of the sum reads the same elements."""
    b = Builder()
    x = b.conv(b.input("x", (1, 4, 12, 10)), 8, 1, clip=RELU6)
    row = b.add(OPS["maxpool"]((12, 1), (1, 1), (1, 1), (0, 0, 0, 0)), x)
    y = b.add(OPS["add"](), b.conv(b.conv(x, 8, 1, clip=RELU6), 8, 1), row)
    graph, plan, _ = exact(b, b.conv(y, 4, 1), SMALL)
    assert row not in over(graph, plan, SMALL).values()


def residual(rng: random.Random, target: Target) -> tuple[Graph, dict[str, np.ndarray]]:
    """Blocks of layers whose results are added to their inputs, to earlier values, or to nothing."""
    b = Builder()
    b.rng = np.random.default_rng(rng.randrange(1 << 30))
    shape = rng.choice((1, 1, 2)), rng.randint(2, 6), rng.randint(4, 12), rng.randint(4, 10)
    made = [b.input("x", shape)]
    made.append(b.conv(made[0], rng.randint(2, 6), 1, clip=RELU6))
    for _ in range(rng.randint(3, 5)):
        x, channels = made[-1], b.arrays[made[-1]].shape[1]
        for _ in range(rng.choice((1, 1, 2, 3))):
            clip, depthwise = rng.choice((None, RELU6)), rng.random() < 0.3
            x = b.conv(x, channels, rng.choice((1, 1, 3)), depthwise=depthwise, clip=clip)
        same = [v for v in made if b.arrays[v].shape == b.arrays[x].shape]
        if rng.random() < 0.85:
            op = OPS[rng.choice(("add", "add", "sub"))](clip=rng.choice((None, RELU6)))
            x = b.add(op, *rng.sample([x, same[-1] if rng.random() < 0.9 else rng.choice(same)], 2))
        if rng.random() < 0.2:
            x = b.add(OPS[rng.choice(("sigmoid", "relu"))](), x)
        made.append(x)
        if rng.random() < 0.15:
            made.append(b.conv(x, rng.randint(2, 6), 1))
    read = {i for n in b.nodes for i in n.inputs}
    outputs = tuple(v for v in made[1:] if v not in read or rng.random() < 0.1)
    return finished(b, outputs, target)


def campaign(seeds: range) -> Counter[str]:
    """Any legal groups, and those of the search, compute the same, without hazards."""
    count: Counter[str] = Counter()
    for seed in seeds:
        rng = random.Random(seed)
        target = random_networks.target(rng)
        try:
            graph, feed = residual(rng, target)
            if seed % 2:
                plan, _ = random_groups.plan(graph, machine(target), target.numerics, rng)
            else:
                plan = plan_network(graph, machine(target), target.numerics)
        except TargetError:
            count["refused"] += 1
            continue
        try:
            check_exact(graph, feed, target, plan)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        kept = set(plan.kept)
        for value, owner in over(graph, plan, target).items():
            count["one group" if owner not in kept else "both stay" if value in kept else "one stays"] += 1
            count["cores"] += target.compute.cores > 1
        count["reordered"] += plan.ahead > 0
    assert count["refused"] < 0.3 * len(seeds)
    return count


def test_a_few_sums_at_random() -> None:
    count = campaign(range(26, 28))
    assert sum(count[kind] for kind in ("one group", "both stay", "one stays")) > 1, count


@pytest.mark.slow
def test_sums_at_random() -> None:
    count = campaign(range(26, 34))
    assert min(count[kind] for kind in ("one group", "both stay", "one stays", "cores")) > 1, count


@pytest.mark.parametrize("first", tiered(range(1000, 2000, SHARD), 2))
def test_many_sums_at_random(first: int) -> None:
    campaign(range(first, first + SHARD))
