"""Halves of a value that is split, in local memory on several cores: in external memory they share bytes."""

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
from npuflow.search.plan import plan_network
from npuflow.search.score import stores_again
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, check_exact, machine
from tests.networks.small import Builder
from tests.schedule.several_cores import check_planned, check_random, several_cores
from tests.tiers import often, tiered

CORES = replace(
    SMALL, compute=replace(SMALL.compute, cores=4), dma=replace(SMALL.dma, multicast=True),
    memory=replace(SMALL.memory, local_bytes=1 << 15, external_bandwidth=2.0),
)


def split(
    target: Target, size: int, channels: int, blocks: int = 2, shown: int = 0
) -> tuple[Graph, dict[str, np.ndarray]]:
    """Blocks whose input is split into halves, all of which are joined with what is made of the second one;
    `shown`: how many of the halves are outputs, too."""
    b = Builder()
    x, outputs = b.input("x", (1, 2 * channels, size, size)), list[str]()
    for _ in range(blocks):
        x = b.conv(x, 2 * channels, 1)
        halves = [half(b, x, k * channels, channels) for k in range(2)]
        y = b.add(OPS["add"](), b.conv(b.conv(halves[1], channels, 3), channels, 3), halves[1])
        outputs += halves
        x = b.conv(b.add(OPS["concat"](1), *halves, y), 2 * channels, 1)
    graph = Graph(("x",), (*outputs[:shown], x), tuple(b.nodes), b.values, b.consts)
    ranges = {n: (float(a.min()), float(a.max())) for n, a in b.arrays.items()}
    return quantize_graph(graph, lambda _: True, ranges, Quantize(), target.numerics).graph, b.arrays


def half(b: Builder, x: str, first: int, channels: int) -> str:
    shape = b.arrays[x].shape
    starts, ends = (0, first, 0, 0), (1, first + channels, *shape[2:])
    return b.add(OPS["slice"](starts, ends, (0, 1, 2, 3), (1, 1, 1, 1)), x)


def test_halves_stay_on_their_cores() -> None:
    """Before, they went through external memory, and with them all that is joined: three times the bytes."""
    graph, arrays = split(CORES, 16, 8)
    plan = plan_network(graph, machine(CORES), CORES.numerics)
    moved = sum(g.parts[0].choice is None for g in plan.groups)
    assert moved == 0 and plan.bytes < 20_000
    check_exact(graph, {"x": arrays["x"]}, CORES, plan)


def test_no_group_stores_a_half_beside_the_whole() -> None:
    graph, _ = split(CORES, 8, 4, blocks=1)
    topology = Topology(graph, machine(CORES), CORES.numerics)
    slices = [n for n in topology.order if graph.nodes[n].op.onnx == "Slice"]
    made = [graph.nodes[n].outputs[0] for n in slices]
    assert set(made) == set(topology.shown_twice) and set(slices) <= set(topology.joining)
    whole = topology.maker[graph.nodes[slices[0]].inputs[0]]
    assert stores_again(topology, (whole, *slices), ())
    assert stores_again(topology, (whole, *slices), made[:1])
    assert not stores_again(topology, (whole, *slices), made)
    assert not stores_again(topology, (whole,), ())
    one = replace(CORES, compute=replace(CORES.compute, cores=1))
    assert not Topology(graph, machine(one), one.numerics).shown_twice


def drawn(seed: int) -> tuple[Graph, dict[str, np.ndarray], Target, random.Random]:
    rng = random.Random(seed)
    target = several_cores(rng)
    size, channels, shown = rng.randint(3, 9), rng.choice((2, 4, 5)), rng.choice((0, 0, 1, 2))
    graph, arrays = split(target, size, channels, 1 + seed % 2, shown)
    return graph, {"x": arrays["x"]}, target, rng


@pytest.mark.parametrize("seed", [*range(3), *tiered(range(3, 80), 12)])
def test_any_plan_computes_the_same(seed: int) -> None:
    graph, feed, target, rng = drawn(seed)
    check_random(graph, feed, target, rng)


@pytest.mark.parametrize("seed", often(range(100, 124), 6))
def test_plans_of_the_search_compute_the_same(seed: int) -> None:
    graph, feed, target, _ = drawn(seed)
    check_planned(graph, feed, target)
