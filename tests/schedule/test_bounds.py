"""Lower bounds: no program is faster, useful work alone counts, and what every program has to do is in
them."""

from __future__ import annotations

import random
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.base.errors import TargetError
from npuflow.hw.target import Compute, Dma, Memory, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, OpSample
from npuflow.program.codegen.generate import generate
from npuflow.quantise.config import Quantize
from npuflow.report.profile import profile
from npuflow.schedule.bounds import LowerBounds, bounds_of
from npuflow.schedule.model import space_of
from npuflow.schedule.work import least_work
from npuflow.search.plan import plan_network
from npuflow.testing.op import check_program, quantised
from npuflow.testing.quantised import quantize_graph
from tests.networks import random_groups, random_networks
from tests.networks.harness import build, machine
from tests.networks.small import Builder
from tests.tiers import often, tiered

PLAIN = Target(
    compute=Compute(
        array_rows=4, array_cols=4, depthwise_macs=4, fill_cycles=10, command_cycles=2, vector_lanes=4
    ),
    memory=Memory(local_bytes=1 << 18, local_align=16, burst=1, external_bandwidth=64.0),
    dma=Dma(setup_cycles=7),
)


def integers(b: Builder, outputs: tuple[str, ...], target: Target, host: int = -1) -> Graph:
    """`host`: the number of a node that stays in float."""
    graph = Graph(("x",), outputs, tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return quantize_graph(graph, lambda node: node != host, ranges, Quantize(), target.numerics).graph


def bound(graph: Graph, target: Target) -> LowerBounds:
    return bounds_of(graph, machine(target), target.numerics)


def judged(seed: int, searched: bool) -> None:
    """A network, a machine and a plan drawn at random, or the best plan; by the clock, which knows nothing of
    bounds."""
    rng = random.Random(seed)
    target = random_networks.target(rng)
    try:
        graph, _ = random_networks.network(rng, target.numerics)
        if searched:
            plan = plan_network(graph, machine(target), target.numerics)
        else:
            plan, _ = random_groups.plan(graph, machine(target), target.numerics, rng)
    except TargetError:
        return
    found, least = profile(generate(graph, plan, target)), bound(graph, target)
    assert 0 < least.cycles <= found.cycles
    assert least.bytes <= float(found.timeline.moved.sum())


@pytest.mark.parametrize("examples", often([2, 12], 2))
def test_no_program_is_faster(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=True)
    @given(seed=st.integers(0, 1 << 20))
    def judge(seed: int) -> None:
        judged(seed, False)

    judge()


# 23, 83, 154: sums over layers, as if engines did not overlap, are above the cycles; 332, 432: whole layers,
# of which strided ones behind read every other row, are
@pytest.mark.parametrize("seed", often([23, 83, 154, 332, 432], 3))
def test_no_plan_of_the_search_is_faster(seed: int) -> None:
    judged(seed, True)


@pytest.mark.parametrize("first", tiered(range(0, 400, 50), 2))
def test_many_plans_of_the_search(first: int) -> None:
    for seed in range(first, first + 50):
        judged(seed, True)


def chain(b: Builder, layers: int, kernel: int = 1) -> str:
    x = b.input("x", (1, 4, 6, 6))
    for _ in range(layers):
        x = b.conv(x, 4, kernel)
    return x


@pytest.mark.parametrize("at", [0, 1, 3])
def test_the_host_comes_between(at: int) -> None:
    """A layer on the host cuts the network: the bound of its pieces is not above the NPU's cycles."""
    b = Builder()
    y = chain(b, 4, 3)
    graph = integers(b, (y,), PLAIN, at)
    found, least = profile(build(graph, PLAIN)), bound(graph, PLAIN)
    assert 0 < least.cycles <= found.cycles
    assert least.bytes <= float(found.timeline.moved.sum())


def convolution(kernel: int, pad: int, size: int) -> Graph:
    b = Builder()
    op = OPS["conv"]((kernel, kernel), (1, 1), (1, 1), (pad,) * 4, 1)
    x = b.input("x", (1, 4, size, size))
    y = b.add(op, x, b.const((4, 4, kernel, kernel), 0.1), b.const((4,), 0.1))
    return integers(b, (y,), PLAIN)


def work(graph: Graph) -> float:
    (node,) = (n for n in graph.nodes if n.op.onnx.startswith("Conv"))
    site = graph.site(node)
    part = {a.name: np.arange(a.size) for a in space_of(site, PLAIN.numerics).axes}
    return least_work(site, part, PLAIN.numerics, PLAIN.compute).ways[0].array


def test_products_with_padding_do_not_count() -> None:
    """Of 9 taps on 6 x 6 places (6 + 5 + 5)^2 meet the input: a tap at the edge serves five of six rows."""
    front = PLAIN.compute.command_cycles + PLAIN.compute.fill_cycles
    assert work(convolution(3, 1, 6)) == front + 16 * 16
    assert work(convolution(1, 0, 6)) == front + 36


def test_products_with_inserted_zeros_do_not_count() -> None:
    b = Builder()
    op = OPS["convtranspose"]((2, 2), (2, 2), (1, 1), (0, 0, 0, 0), 1, (0, 0))
    y = b.add(op, b.input("x", (1, 4, 5, 5)), b.const((4, 4, 2, 2), 0.1), b.const((4,), 0.1))
    front = PLAIN.compute.command_cycles + PLAIN.compute.fill_cycles
    assert work(integers(b, (y,), PLAIN)) == front + 4 * 25


def test_a_chain_has_a_command_of_each_engine_a_layer() -> None:
    """Small layers one behind the other: each adds a command and the array's fill, and a command of the
    vector unit; the first waits for a load, and a store follows the last."""
    c, front = PLAIN.compute, PLAIN.compute.command_cycles + PLAIN.dma.setup_cycles
    found = []
    for layers in (2, 3):
        b = Builder()
        found.append(bound(integers(b, (chain(b, layers),), PLAIN), PLAIN))
    layer = c.command_cycles + c.fill_cycles + c.command_cycles
    assert found[1].chain - found[0].chain == pytest.approx(layer)
    assert found[0].chain >= front + 2 * layer + front


def test_what_all_results_depend_on_is_waited_for() -> None:
    """A product of all channels of a vector begins its results behind the last of them."""
    b = Builder()
    x = b.input("x", (1, 32))
    for _ in range(2):
        x = b.add(OPS["gemm"](transB=1), x, b.const((32, 32), 0.1), b.const((32,), 0.1))
    slow = replace(PLAIN, compute=replace(PLAIN.compute, vector_lanes=1))
    least = bound(integers(b, (x,), slow), slow)
    assert least.chain >= 32 + slow.compute.fill_cycles  # the whole first layer, and the second's command


def test_more_cores_share_the_work() -> None:
    b = Builder()
    graph = integers(b, (chain(b, 2, 3),), PLAIN)
    four = bound(graph, replace(PLAIN, compute=replace(PLAIN.compute, cores=4)))
    one = bound(graph, PLAIN)
    assert one.compute == one.alone == four.alone and one.compute / 4 < four.compute < one.compute


def test_bytes_that_are_the_same_cross_once() -> None:
    """A view of a result that the caller asks for too, and weights of two layers that are equal."""
    b = Builder()
    x = b.input("x", (1, 4, 6, 6))
    w, bias = b.const((4, 4, 1, 1), 0.3), b.const((4,), 0.1)
    op = OPS["conv"]((1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 1)
    y = b.add(op, b.add(op, x, w, bias), w, bias)
    flat = b.add(OPS["reshape"]((1, 144)), y)
    alone, both = bound(integers(b, (y,), PLAIN), PLAIN), bound(integers(b, (y, flat), PLAIN), PLAIN)
    assert both.bytes == alone.bytes
    sizes = {n: int(np.asarray(a).nbytes) for n, a in integers(b, (y,), PLAIN).consts.items()}
    assert alone.bytes <= 2 * 144 + sum(sizes.values())


def test_a_result_without_dimensions_has_a_bound() -> None:
    sample = OpSample(OPS["reducemean"]((0,), 0), (np.arange(7, dtype=np.float32),))
    target = Target()
    graph, one = quantised(sample, target.numerics, Quantize())
    check_program(graph, one.inputs, target, "a mean to a scalar")
