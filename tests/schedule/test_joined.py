"""Values that are joined in local memory are made in their place, wherever they can be."""

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
from npuflow.quantise.config import Quantize
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.groups import FusionGroup
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.testing.quantised import quantize_graph
from tests.networks import random_groups, random_networks
from tests.networks.harness import SMALL, check_exact, machine
from tests.networks.small import Builder
from tests.tiers import often, tiered

ROOMY = replace(SMALL, memory=replace(SMALL.memory, local_bytes=1 << 15, external_bandwidth=1.0))
CONCAT = OPS["concat"]
SHARD = 100


def finished(b: Builder, outputs: tuple[str, ...], target: Target) -> tuple[Graph, dict[str, np.ndarray]]:
    graph = Graph(("x",), outputs, tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    config = Quantize()
    return quantize_graph(graph, lambda _: True, ranges, config, target.numerics).graph, {"x": b.arrays["x"]}


def copies(program: Program) -> int:
    return sum(c.opcode == "COPY" for core in program.decoded for c in core)


def joins(graph: Graph, plan: TilingPlan, target: Target) -> set[str]:
    """Values that a plan makes in their place."""
    topology = Topology(graph, machine(target), target.numerics)
    frames = [Frame(topology, g, frozenset(plan.kept)) for g in plan.groups]
    return {v for f in frames for v in f.joins}


def inception(target: Target, axis: int) -> tuple[Graph, dict[str, np.ndarray]]:
    """Branches of one layer, of different lengths, that are joined and read."""
    b = Builder()
    x = b.conv(b.input("x", (1, 4, 12, 10)), 8, 1, clip=(0.0, 6.0))
    pooled = b.add(OPS["maxpool"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), x)
    long = b.conv(b.conv(x, 4, 1, clip=(0.0, 6.0)), 8, 3, clip=(0.0, 6.0))
    x = b.add(CONCAT(axis), b.conv(x, 8, 1, clip=(0.0, 6.0)), long, b.conv(pooled, 8, 1, clip=(0.0, 6.0)))
    return finished(b, (b.conv(x, 4, 1),), target)


def dense(target: Target) -> tuple[Graph, dict[str, np.ndarray]]:
    """Each layer reads what all before it have made, joined."""
    b = Builder()
    x = b.conv(b.input("x", (1, 4, 12, 10)), 8, 1, clip=(0.0, 6.0))
    for _ in range(3):
        new = b.conv(b.conv(x, 8, 1, clip=(0.0, 6.0)), 4, 3, clip=(0.0, 6.0))
        x = b.add(CONCAT(1), x, new)
    return finished(b, (b.conv(x, 4, 1),), target)


@pytest.mark.parametrize("axis", often([2, 1, 3], 3))
def test_branches_are_made_in_their_place(axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command copies, and the plan is faster than the one that copies. Of values joined along rows no
    strip has the same rows, but the group has one strip."""
    graph, feed = inception(ROOMY, axis)
    plan = plan_network(graph, machine(ROOMY), ROOMY.numerics)
    program = check_exact(graph, feed, ROOMY, plan)
    assert len(joins(graph, plan, ROOMY)) == 3 and copies(program) == 0
    assert program.meta["plan"]["cycles"] == pytest.approx(plan.cycles)
    monkeypatch.setattr(Topology, "makes_in_place", False)
    copied = plan_network(graph, machine(ROOMY), ROOMY.numerics)
    assert copies(check_exact(graph, feed, ROOMY, copied)) >= 3
    assert plan.cycles < copied.cycles and plan.bytes <= copied.bytes


def test_what_is_joined_again_lies_in_the_last_of_all() -> None:
    """A dense block has one buffer, in which every layer's channels have their place."""
    graph, feed = dense(ROOMY)
    plan = plan_network(graph, machine(ROOMY), ROOMY.numerics)
    program = check_exact(graph, feed, ROOMY, plan)
    topology = Topology(graph, machine(ROOMY), ROOMY.numerics)
    frames = [Frame(topology, g, frozenset(plan.kept)) for g in plan.groups]
    owners = [{f.owner(v) for v in f.joins} for f in frames]
    assert len(joins(graph, plan, ROOMY)) > 3 and max(map(len, owners)) == 1 and copies(program) < 3


def test_what_is_joined_twice_is_copied_once() -> None:
    """One value cannot lie in two places."""
    b = Builder()
    x = b.conv(b.input("x", (1, 4, 12, 10)), 8, 1, clip=(0.0, 6.0))
    y = b.conv(x, 8, 1, clip=(0.0, 6.0))
    twice = b.add(CONCAT(1), y, b.conv(x, 8, 1, clip=(0.0, 6.0)), y)
    graph, feed = finished(b, (b.conv(twice, 4, 1),), ROOMY)
    plan = plan_network(graph, machine(ROOMY), ROOMY.numerics)
    program = check_exact(graph, feed, ROOMY, plan)
    assert len(joins(graph, plan, ROOMY)) == 2 and copies(program) > 0


def test_a_joined_value_that_is_a_result_is_stored_part_by_part() -> None:
    """Each part as soon as it is made; so is a part that somebody else wants, too."""
    b = Builder()
    x = b.conv(b.input("x", (1, 4, 12, 10)), 8, 1, clip=(0.0, 6.0))
    sides = b.conv(x, 8, 1, clip=(0.0, 6.0)), b.conv(x, 8, 3, clip=(0.0, 6.0))
    y = b.add(CONCAT(1), *sides)
    graph, feed = finished(b, (b.conv(y, 4, 1), y, sides[1]), ROOMY)
    plan = plan_network(graph, machine(ROOMY), ROOMY.numerics)
    program = check_exact(graph, feed, ROOMY, plan)
    assert len(joins(graph, plan, ROOMY)) == 2 and copies(program) == 0


def joining(rng: random.Random, target: Target) -> tuple[Graph, dict[str, np.ndarray]]:
    """Layers, some of which join what others have made."""
    b = Builder()
    b.rng = np.random.default_rng(rng.randrange(1 << 30))
    shape = rng.choice((1, 1, 2)), rng.randint(2, 6), rng.randint(4, 12), rng.randint(4, 10)
    made = [b.conv(b.input("x", shape), rng.randint(2, 6), 1, clip=(0.0, 6.0))]
    for _ in range(rng.randint(4, 8)):
        x = made[-1] if rng.random() < 0.6 else rng.choice(made)
        axis = rng.choice((1, 1, 1, 2, 3))
        size = tuple(n for d, n in enumerate(b.arrays[x].shape) if d != axis)
        fit = [v for v in made if tuple(n for d, n in enumerate(b.arrays[v].shape) if d != axis) == size]
        if rng.random() < 0.5 and len(fit) > 1 and b.arrays[x].size < 3000:
            sides = [rng.choice(fit) for _ in range(rng.choice((1, 1, 2)))]
            made.append(b.add(CONCAT(axis), *(rng.sample([x, *sides], 1 + len(sides)))))
        elif rng.random() < 0.2:
            made.append(b.add(OPS["maxpool"]((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), x))
        else:
            made.append(b.conv(x, rng.randint(2, 6), rng.choice((1, 1, 3)), clip=(0.0, 6.0)))
    read = {i for n in b.nodes for i in n.inputs}
    outputs = tuple(v for v in made if v not in read or rng.random() < 0.15)
    return finished(b, outputs, target)


def cut_along(graph: Graph, group: FusionGroup) -> bool:
    """Whether cores cut the dimension along which the group joins values, as the search never does: one core
    makes all of the joined value, and several make the parts that others want."""
    dim, count = group.cores
    ops = (graph.nodes[n].op for n in group.nodes)
    return count > 1 and any(getattr(op, "axis", dim) == dim for op in ops if isinstance(op, CONCAT))


def campaign(seeds: range) -> Counter[str]:
    """Any legal groups, and those of the search, compute the same."""
    count: Counter[str] = Counter()
    for seed in seeds:
        rng = random.Random(seed)
        target = random_networks.target(rng)
        try:
            graph, feed = joining(rng, target)
            if seed % 3:
                plan, _ = random_groups.plan(graph, machine(target), target.numerics, rng)
            else:
                plan = plan_network(graph, machine(target), target.numerics)
        except TargetError:
            count["refused"] += 1
            continue
        if any(cut_along(graph, g) for g in plan.groups):
            continue
        try:
            check_exact(graph, feed, target, plan)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        topology = Topology(graph, machine(target), target.numerics)
        for frame in (Frame(topology, g, frozenset(plan.kept)) for g in plan.groups):
            count["joins"] += len(frame.joins)
            count["stripes"] += len(frame.joins) > 0 and len(frame.strips[0]) > 1
            count["cores"] += len(frame.joins) > 0 and frame.group.cores[1] > 1
    assert count["refused"] < 0.3 * len(seeds)
    return count


@pytest.mark.slow
def test_values_joined_at_random() -> None:
    count = campaign(range(24))
    assert count["joins"] > 12 and count["stripes"] > 2 and count["cores"] > 2, count


@pytest.mark.parametrize("first", tiered(range(1000, 3000, SHARD), 2))
def test_many_values_joined_at_random(first: int) -> None:
    campaign(range(first, first + SHARD))
