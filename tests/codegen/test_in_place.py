"""Results written over an input that dies: fewer bytes at once, the same integers, and
nothing where it would be wrong."""

from __future__ import annotations

import random
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.program.container import Program
from npuflow.quantise.config import Quantize
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.groups import FusedOp
from npuflow.search.plan import plan_network
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, check_exact, machine
from tests.networks.random_networks import network, target
from tests.networks.random_tilings import choice
from tests.networks.small import Builder
from tests.tiers import often


def exact(b: Builder, outputs: tuple[str, ...], level: int, machine_: Target = SMALL) -> Program:
    """The program of float layers, proven free of hazards and equal to the reference on every tensor."""
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    graph = Graph(("x",), outputs, tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    graph = quantize_graph(graph, lambda _: True, ranges, Quantize(), machine_.numerics).graph
    plan = plan_network(graph, machine(machine_), machine_.numerics, level=level)
    return check_exact(graph, {"x": b.arrays["x"]}, machine_, plan)


def homes(program: Program) -> dict[str, str]:
    """Result -> the value whose bytes it took over; both have one address."""
    found: dict[str, str] = program.meta["memory"]["in_place"]
    for result, value in found.items():
        assert program.meta["values"][result]["address"] == program.meta["values"][value]["address"]
    return found


def residual(more: bool) -> tuple[Builder, tuple[str, ...]]:
    """A sum of two branches; with `more`, the shortcut is read again afterwards."""
    b = Builder()
    x = b.conv(b.input("x", (1, 8, 12, 12)), 16, 3)
    y = b.add(OPS["add"](), b.conv(x, 16, 3), x)
    return b, (b.add(OPS["mul"](), y, x) if more else b.conv(y, 4, 3),)


@pytest.mark.parametrize("cores", [1, 2])
def test_a_sum_takes_over_the_bytes_of_an_operand(cores: int) -> None:
    b, out = residual(False)
    program = exact(b, out, 0, replace(SMALL, compute=replace(SMALL.compute, cores=cores)))
    assert homes(program)
    assert program.meta["data_bytes"] < 3 * 16 * 144


def test_an_input_that_is_read_again_stays() -> None:
    b, out = residual(True)
    found = homes(exact(b, out, 0))
    total = next(n.outputs[0] for n in b.nodes if n.op.onnx == "Add")
    shortcut = b.nodes[0].outputs[0]
    assert found.get(total) != shortcut


def test_a_chain_keeps_one_address() -> None:
    b = Builder()
    x = b.input("x", (1, 8, 12, 12))
    y = b.add(OPS["sigmoid"](), b.add(OPS["tanh"](), b.add(OPS["sigmoid"](), x)))
    program = exact(b, (y,), 0)
    found = homes(program)
    # the network's input and its output lie in one place
    assert len(found) == 3 and len(set(found.values())) == 1
    assert program.meta["data_bytes"] == 8 * 144


def test_windows_do_not_write_over_what_they_read() -> None:
    b = Builder()
    y = b.conv(b.conv(b.input("x", (1, 8, 12, 12)), 8, 3), 8, 3)
    assert not homes(exact(b, (y,), 0))


def test_cores_that_share_an_undivided_axis_write_elsewhere() -> None:
    """Each of them reads the whole row and writes half of it: in place, one might write before the other has
    read."""
    b = Builder()
    x = b.input("x", (1, 12))
    b.add(OPS["softmax"](1), x)
    y = b.nodes[-1].outputs[0]
    machine_ = replace(SMALL, compute=replace(SMALL.compute, cores=2))
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    graph = Graph(("x",), (y,), tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    graph = quantize_graph(graph, lambda _: True, ranges, Quantize(), machine_.numerics).graph
    costs = machine(machine_)
    plan = plan_network(graph, costs, machine_.numerics, level=0)
    assert len(plan.groups) == 1
    made = graph.nodes[plan.groups[0].nodes[0]].outputs[0]
    halved = replace(plan.groups[0], cores=(1, 2), held=((made, 1),))
    topology = Topology(graph, costs, machine_.numerics)
    tiles = choice(Frame(topology, halved, frozenset()).layers[0], costs, random.Random(0), 30)
    halved = replace(halved, parts=(FusedOp(halved.nodes, tiles),))
    program = check_exact(graph, {"x": b.arrays["x"]}, machine_, replace(plan, groups=(halved,)))
    assert not homes(program)


@pytest.mark.parametrize("seed", often(range(8), 4))
def test_random_networks(seed: int) -> None:
    rng = random.Random(8100 + seed)
    machine_ = target(rng)
    machine_ = replace(machine_, memory=replace(machine_.memory, local_bytes=rng.choice((8192, 16384))))
    graph, inputs = network(rng, machine_.numerics, 9)
    program = check_exact(
        graph, inputs, machine_, plan_network(graph, machine(machine_), machine_.numerics, level=seed % 4)
    )
    values = program.meta["values"]
    for result, value in homes(program).items():
        assert np.prod(values[result]["shape"]) == np.prod(values[value]["shape"])
