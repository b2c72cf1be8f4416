"""The schedule time of plans drawn at random: any groups, strips, cores, buffers and tensors
that stay, as near as the bars."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from npuflow.base.errors import TargetError
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.quantise.config import Quantize
from npuflow.report.profile import profile
from npuflow.report.profile.schedule import apart, compare
from npuflow.testing.quantised import quantize_graph
from tests.networks import random_groups, random_networks
from tests.networks.harness import SMALL, build, machine
from tests.networks.small import Builder
from tests.tiers import often, tiered

SHARD = 100


def judged(seed: int, batch: int = 0) -> bool:
    """Whether the seed gives a program; its schedule time is then within every bar."""
    rng = random.Random(seed)
    target = random_networks.target(rng)
    try:
        graph, _ = random_networks.network(rng, target.numerics, 5 if batch else 7, batch=batch)
        plan, _ = random_groups.plan(graph, machine(target), target.numerics, rng)
    except TargetError:
        return False
    found = profile(build(graph, target, plan))
    assert not apart(found), f"seed {seed}: " + "; ".join(map(str, apart(found)))
    return bool(compare(found))


@pytest.mark.parametrize(("seeds", "least"), often([(range(4), 2), (range(4, 12), 5)], 2))
def test_plans_drawn_at_random(seeds: range, least: int) -> None:
    assert sum(map(judged, seeds)) > least


@pytest.mark.parametrize("first", tiered(range(1000, 2000, SHARD), 1))
def test_many_plans_drawn_at_random(first: int) -> None:
    assert sum(map(judged, range(first, first + SHARD))) > 0.6 * SHARD


@pytest.mark.parametrize("batch", often([4, 2, 8], 3))
def test_batches(batch: int) -> None:
    """Several samples, by plans drawn at random and by the search's own."""
    assert sum(judged(seed, batch) for seed in range(5)) > 2
    rng = random.Random(batch)
    graph, _ = random_networks.network(rng, SMALL.numerics, 4, batch=batch)
    assert not apart(profile(build(graph, SMALL)))


def test_banks_of_packed_constants() -> None:
    """A command takes the ports of the banks where its own operands lie: weights, bias and tables that
    were loaded as one block are read by different engines. Counted as read whole, every requantisation
    waits for the weights."""
    b = Builder()
    x = b.conv(b.input("x", (1, 8, 8, 8)), 32, 1)
    for _ in range(3):
        x = b.conv(b.add(OPS["hardswish"](), x), 32, 3)
    graph = Graph(("x",), (x,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    memory = replace(
        SMALL.memory, external_bandwidth=16.0, local_bytes=1 << 16, local_banks=4, bank_ports=1,
        local_bandwidth=16,
    )
    target = replace(SMALL, memory=memory)
    done = quantize_graph(graph, lambda _: True, ranges, Quantize(), target.numerics)
    found = profile(build(done.graph, target))
    assert found.timeline.banks.sum() > 0
    assert compare(found)[0].error == pytest.approx(0, abs=1e-4)


def transposed(b: Builder) -> str:
    op = OPS["convtranspose"]((4, 4), (2, 2), (1, 1), (1, 1, 1, 1), 1, (0, 0))
    return b.add(op, b.input("x", (1, 6, 5, 5)), b.const((6, 7, 4, 4), 0.1), b.const((7,), 0.1))


def product(b: Builder) -> str:
    return b.add(OPS["matmul"](), b.input("x", (2, 1, 5, 7)), b.input("z", (3, 7, 9)))


def grouped(b: Builder) -> str:
    op = OPS["conv"]((1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 4)
    return b.add(op, b.input("x", (2, 4, 6, 1)), b.const((4, 1, 1, 1), 0.1), b.const((4,), 0.1))


def reduced(b: Builder) -> str:
    return b.add(OPS["reducesum"]((0, 2), 0), b.input("x", (2, 3, 4, 5)))


@pytest.mark.parametrize("dataflow", ["weight_stationary", "output_stationary"])
@pytest.mark.parametrize("layer", [transposed, product, grouped, reduced], ids=lambda f: f.__name__)
def test_terms_of_layers_that_map_in_ways_of_their_own(layer, dataflow: str) -> None:  # type: ignore[no-untyped-def]
    """Taps that meet inserted zeros, a batch that repeats one operand, groups of one channel,
    reductions in several commands."""
    target = replace(SMALL, compute=replace(SMALL.compute, dataflow=dataflow, vector_lanes=1))
    b = Builder()
    y = layer(b)
    graph = Graph(tuple(v for v in ("x", "z") if v in b.values), (y,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    done = quantize_graph(graph, lambda _: True, ranges, Quantize(), target.numerics)
    found = profile(build(done.graph, target))
    assert compare(found)[0].error == pytest.approx(0, abs=0.01)
    for row in compare(found)[1:]:
        assert row.schedule == pytest.approx(row.clock), str(row)
