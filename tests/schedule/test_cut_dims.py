"""Cores cut every value of a group along the axis that its last result is cut along, wherever that lies."""

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
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, check_exact, machine
from tests.networks.small import Builder
from tests.schedule.several_cores import check_planned, check_random, several_cores
from tests.tiers import often, tiered

CORES = replace(
    SMALL, compute=replace(SMALL.compute, cores=4), dma=replace(SMALL.dma, multicast=True),
    memory=replace(SMALL.memory, local_bytes=1 << 15, external_bandwidth=8.0),
)


def attention(
    target: Target, rows: int, heads: int, wide: int, blocks: int = 1
) -> tuple[Graph, dict[str, np.ndarray]]:
    """Blocks of attention over matrices: Reshapes and Transposes to heads and back."""
    b = Builder()
    x = b.input("x", (rows, heads * wide))
    size = heads * wide

    def dense(y: str) -> str:
        return b.add(OPS["gemm"](transB=1), y, b.const((size, size), size**-0.5), b.const((size,), 0.1))

    def split(y: str, perm: tuple[int, ...]) -> str:
        return b.add(OPS["transpose"](perm), b.add(OPS["reshape"]((1, rows, heads, wide)), y))

    for _ in range(blocks):
        q, k, v = (split(dense(x), perm) for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)))
        weights = b.add(OPS["softmax"](-1), b.add(OPS["matmul"](), q, k))
        mixed = b.add(OPS["transpose"]((0, 2, 1, 3)), b.add(OPS["matmul"](), weights, v))
        x = b.add(OPS["add"](), x, dense(b.add(OPS["reshape"]((rows, size)), mixed)))
    graph = Graph(("x",), (x,), tuple(b.nodes), b.values, b.consts)
    ranges = {n: (float(a.min()), float(a.max())) for n, a in b.arrays.items()}
    return quantize_graph(graph, lambda _: True, ranges, Quantize(), target.numerics).graph, b.arrays


def test_rows_are_followed_through_reshapes_and_transposes() -> None:
    graph, _ = attention(CORES, 24, 2, 8)
    topology = Topology(graph, machine(CORES), CORES.numerics)
    parts = tuple((n,) for n in topology.order)
    found = {v: d for v, d in topology.dims(parts, (0, 4)).items() if graph.values[v].const is None}
    shapes = {v: graph.type(v).shape for v in found}
    assert found["x:q"] == 0
    assert all(shape[found[v]] == 24 for v, shape in shapes.items())
    assert len([s for s in shapes.values() if len(s) == 4]) >= 6      # of every branch, keys and values too
    assert topology.dims(parts, (0, 1)) == {}


def test_cores_share_all_of_an_attention() -> None:
    """Every core keeps its rows, and only keys and values are handed on. When cores cut all results along the
    same number of dimension, matrices could not stay next to heads, and twice the bytes moved."""
    graph, arrays = attention(CORES, 64, 2, 16, blocks=2)
    plan = plan_network(graph, machine(CORES), CORES.numerics)
    alone = replace(CORES, compute=replace(CORES.compute, cores=1))
    one = plan_network(graph, machine(alone), CORES.numerics)
    assert all(g.cores[1] == 4 for g in plan.groups if g.parts[0].choice is not None)
    assert plan.cycles < one.cycles / 3.9 and plan.bytes < 40_000
    check_exact(graph, {"x": arrays["x"]}, CORES, plan)


def drawn(seed: int) -> tuple[Graph, dict[str, np.ndarray], Target, random.Random]:
    rng = random.Random(seed)
    target = several_cores(rng)
    graph, arrays = attention(target, rng.randint(3, 17), rng.randint(1, 3), rng.choice((3, 4, 8)))
    return graph, {"x": arrays["x"]}, target, rng


@pytest.mark.parametrize("seed", [*range(3), *tiered(range(3, 60), 12)])
def test_any_cut_computes_the_same(seed: int) -> None:
    graph, feed, target, rng = drawn(seed)
    check_random(graph, feed, target, rng)


@pytest.mark.parametrize("seed", often(range(100, 112), 4))
def test_plans_of_the_search_compute_the_same(seed: int) -> None:
    graph, feed, target, _ = drawn(seed)
    check_planned(graph, feed, target)
