"""Repeated blocks are costed once, alone and where activations stay on their cores, and plans
are those of a full search."""

from __future__ import annotations

from unittest import mock

from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.quantise.config import Quantize
from npuflow.schedule.frame import Topology
from npuflow.schedule.groups import FusionGroup
from npuflow.search.canonical import Known, Stretches
from npuflow.search.parts import Planner
from npuflow.search.score import Scorer
from npuflow.search.spans import Coster
from npuflow.search.stay import ResidencySearch
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import machine
from tests.networks.small import Builder
from tests.search.test_stay import CORES

BLOCKS, LEVEL = 6, 3


def blocks(target: Target) -> Graph:
    """Equal residual blocks of two convolutions."""
    b = Builder()
    x = b.input("x", (1, 8, 16, 16))
    for _ in range(BLOCKS):
        x = b.add(OPS["add"](), b.conv(b.conv(x, 8, 3), 8, 3), x)
    graph = Graph(("x",), (x,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return quantize_graph(graph, lambda _: True, ranges, Quantize(), target.numerics).graph


def parts_of(graph: Graph) -> tuple[Topology, list[FusionGroup]]:
    return Topology(graph, machine(CORES), CORES.numerics), Planner(
        graph, machine(CORES), CORES.numerics, LEVEL
    ).groups()


def test_equal_stretches_are_costed_once_and_cost_the_same() -> None:
    topology, parts = parts_of(blocks(CORES))
    size = len(parts) // BLOCKS
    coster = Coster(topology, machine(CORES), LEVEL, parts, Scorer(topology, machine(CORES), LEVEL))
    costed = mock.patch.object(coster.scorer, "cost", wraps=coster.scorer.cost)
    with costed as counted:
        first, ways = coster.costed(size, 2 * size)
        different = counted.call_count
        assert first is not None and ways >= different > 0
        for block in range(2, BLOCKS - 1):
            again, tried = coster.costed(block * size, (block + 1) * size)
            assert counted.call_count == different and tried == ways     # none anew, all counted
            alone = Coster(topology, machine(CORES), LEVEL, parts, Scorer(topology, machine(CORES), LEVEL))
            assert again == alone.best(block * size, (block + 1) * size) != first
    assert len(coster.stretches.known.groups) == 1


def test_what_stays_is_solved_once_for_equal_blocks() -> None:
    topology, parts = parts_of(blocks(CORES))
    plans, asked = [], []
    for memo in (True, False):
        scorer = Scorer(topology, machine(CORES), LEVEL)
        coster = Coster(topology, machine(CORES), LEVEL, parts, Scorer(topology, machine(CORES), LEVEL))
        stretches = Stretches(topology, parts, Known())
        if not memo:
            mock.patch.object(stretches, "once", lambda start, end, kept, find: find()).start()
        with mock.patch.object(scorer, "frame", wraps=scorer.frame) as counted:
            plans.append(ResidencySearch(machine(CORES), stretches, scorer, coster.best).plan(1.0))
        asked.append(counted.call_count)
    assert plans[0] is not None and plans[0] == plans[1]
    assert asked[0] < asked[1] / 2


def test_the_ends_of_a_network_are_no_blocks_like_others() -> None:
    """The same layers, but the host reads what the last makes."""
    topology, parts = parts_of(blocks(CORES))
    coster = Coster(topology, machine(CORES), LEVEL, parts, Scorer(topology, machine(CORES), LEVEL))
    size = len(parts) // BLOCKS
    stretch = [coster.stretches.key(b * size, (b + 1) * size)[0] for b in range(BLOCKS)]
    assert len(set(stretch[1:])) == 1
    kept = topology.needed([n for g in parts[: 2 * size] for n in g.nodes])
    assert coster.stretches.key(size, 2 * size, kept)[0] != stretch[1]
