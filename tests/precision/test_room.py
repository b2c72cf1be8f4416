"""Searches do not widen what would then have no tile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npuflow.hw.target import Memory, Target
from npuflow.ir.op import OPS
from npuflow.search.plan import plan_network
from npuflow.strategies import NARROW, STRATEGIES, WIDE, Budget
from npuflow.tune.precision.problem import SearchProblem, cost_of
from npuflow.tune.precision.sensitivity import noises
from tests.networks.floats import Net
from tests.precision.harnesses import BOTH, feeds_of, harness_of

LONG = 4096


def test_a_layer_without_a_wide_tile_stays_narrow() -> None:
    """A Softmax over 4,096 elements, which are in one tile: 8 bits fit 12 KiB of local memory, 16 do not."""
    net = Net(3, 1, 4, 8, 8)
    net.conv("c", "x", 64, 1)
    net.add("turned", OPS["transpose"]((0, 2, 3, 1)), "c")
    net.add("flat", OPS["reshape"]((1, LONG)), "turned")
    net.add("y", OPS["softmax"](1), "flat")
    graph = net.graph("y")
    target = Target(numerics=BOTH, memory=replace(Memory(), local_bytes=12 << 10))
    harness = harness_of(graph, feeds=feeds_of(graph, 12))
    noise, said = noises(harness, 2, lambda done, count: None), list[str]()
    problem = SearchProblem(
        harness, cost_of(harness, target), Budget(60.0, 1.1), lambda: list(noise), 2, False, said.append
    )
    widths = {unit.name: unit.candidates for unit in problem.units if unit.kind == "activation"}
    assert widths == {"x": (NARROW, WIDE), "c": (NARROW,), "y": (NARROW,)}
    assert any("no tile that fits local memory" in line for line in said)
    levels = STRATEGIES["auto"]()(problem)
    machine = problem.cost.machine
    plan_network(harness.built(levels), machine, target.numerics, 1)
    everything = harness.built((WIDE,) * len(levels))
    with pytest.raises(Exception, match="local memory"):
        plan_network(everything, machine, target.numerics, 1)
