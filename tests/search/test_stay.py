"""Plans whose activations stay on their cores: what they may join."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.quantise.config import Quantize
from npuflow.schedule.frame import Topology
from npuflow.search.fuse import Fuser
from npuflow.search.parts import Planner
from npuflow.search.plan import plan_network
from npuflow.search.strategies import STRATEGIES
from npuflow.testing.quantised import quantize_graph
from tests.networks import random_networks
from tests.networks.harness import SMALL, check_exact, machine
from tests.networks.small import Builder
from tests.tiers import often

HOST = 3
CORES = replace(
    SMALL, compute=replace(SMALL.compute, cores=4), dma=replace(SMALL.dma, multicast=True),
    memory=replace(SMALL.memory, local_bytes=1 << 14, external_bandwidth=1.0),
)


def with_host(target: Target) -> Graph:
    """Convolutions, one of which runs on the host."""
    b = Builder()
    x = b.input("x", (1, 8, 16, 16))
    for _ in range(6):
        x = b.conv(x, 8, 3)
    graph = Graph(("x",), (x,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return quantize_graph(graph, lambda i: i != HOST, ranges, Quantize(), target.numerics).graph


def test_no_group_goes_round_the_host() -> None:
    graph = with_host(CORES)
    topology = Topology(graph, machine(CORES), CORES.numerics)
    singles = Planner(graph, machine(CORES), CORES.numerics, 3).groups()
    found = list(Fuser(topology, machine(CORES), singles, 3).finalists())
    assert any(f.origin.startswith("rows stay") and f.kept for f in found)
    for finalist in found:
        for group in finalist.groups:
            assert len({topology.segment[n] for n in group.nodes if n in topology.segment}) == 1, (
                finalist.origin
            )


def branches(target: Target) -> tuple[Graph, dict[str, np.ndarray]]:
    """Five times three branches that are joined."""
    b = Builder()
    x = b.input("x", (1, 8, 16, 16))
    for _ in range(5):
        parts = b.conv(x, 8, 1), b.conv(x, 8, 3), b.conv(b.conv(x, 4, 1), 8, 3)
        x = b.conv(b.add(OPS["concat"](1), *parts), 8, 3)
    graph = Graph(("x",), (x,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return quantize_graph(graph, lambda i: True, ranges, Quantize(), target.numerics).graph, b.arrays


@pytest.mark.parametrize(
    ("strategy", "kib"),
    [("rows stay, bus x 1.0", 13), ("rows stay in half, bus x 1.0", 16)],
)
def test_plans_that_find_no_room_are_mended(strategy: str, kib: int) -> None:
    """Some values leave local memory, or some groups get smaller tiles or are cut; the others stay."""
    memory = replace(SMALL.memory, local_bytes=kib << 10, external_bandwidth=1.0)
    target = replace(SMALL, memory=memory)
    graph, arrays = branches(target)
    without = [s.name for s in STRATEGIES if s.name != strategy]
    plan = plan_network(graph, machine(target), target.numerics, without=without)
    assert plan.origin == strategy and plan.kept
    check_exact(graph, {"x": arrays["x"]}, target, plan)


@pytest.mark.parametrize("seed", often([49, 312], 2))
def test_groups_that_find_no_addresses_are_mended(seed: int) -> None:
    """Their bytes find room by the sums alone: they get smaller tiles, or their parts run one by one."""
    rng = random.Random(seed)
    target = random_networks.target(rng)
    memory = replace(target.memory, external_bandwidth=0.5)
    target = replace(target, compute=replace(target.compute, cores=1), memory=memory)
    graph, feed = random_networks.network(rng, target.numerics, 12)
    fuser = Fuser(
        Topology(graph, machine(target), target.numerics), machine(target),
        Planner(graph, machine(target), target.numerics, 3).groups(), 3,
    )
    states = fuser._keep(list(fuser.cuts()))
    assert not fuser._placed(*states.at(-1))
    assert fuser._placed(*fuser._settled(states))
    without = [s.name for s in STRATEGIES if s.name != "bus x 0.2"]
    check_exact(graph, feed, target, plan_network(graph, machine(target), target.numerics, without=without))
