"""Values that a group makes are joined, permuted and cut in local memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Op
from npuflow.quantise.config import Quantize
from npuflow.search.plan import plan_network
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, check_exact, machine
from tests.networks.small import Builder
from tests.tiers import often, spread

WIDE = replace(SMALL, memory=replace(SMALL.memory, local_bytes=1 << 15, external_bandwidth=1.0))
CORES = replace(WIDE, compute=replace(WIDE.compute, cores=3), dma=replace(WIDE.dma, multicast=True))
TARGETS = {"wide": WIDE, "small": SMALL, "cores": CORES}
CONCAT = OPS["concat"]


def fires(target: Target, axis: int, outside: bool = False) -> tuple[Graph, dict[str, np.ndarray]]:
    """Two blocks of a layer that two others read, whose results are joined; `outside`: somebody reads one of
    them as it is, too."""
    b = Builder()
    x = b.input("x", (1, 4, 12, 10))
    wanted = []
    for _ in range(2):
        x = b.conv(x, 4, 1, clip=(0.0, 6.0))
        sides = b.conv(x, 8, 1, clip=(0.0, 6.0)), b.conv(x, 8, 3, clip=(0.0, 6.0))
        wanted += sides[1:] if outside else []
        x = b.add(CONCAT(axis), *sides)
    graph = Graph(("x",), (b.conv(x, 4, 1), *wanted), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return quantize_graph(graph, lambda _: True, ranges, Quantize(), target.numerics).graph, b.arrays


@pytest.mark.parametrize(
    ("target", "axis", "outside"),
    often([(SMALL, 3, False), (WIDE, 1, True), (CORES, 1, True), (WIDE, 3, False), (CORES, 1, False)], 4),
)
def test_joined_values_never_leave_local_memory(
    target: Target, axis: int, outside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, arrays = fires(target, axis, outside)
    plan = plan_network(graph, machine(target), target.numerics)
    check_exact(graph, {"x": arrays["x"]}, target, plan)
    inside = [g for g in plan.groups if len(g.parts) > 1 and any(_joins(graph, n) for n in g.nodes)]
    monkeypatch.setattr(CONCAT, "local_space", lambda self, site: None)
    apart = plan_network(graph, machine(target), target.numerics)
    assert plan.cycles <= 1.03 * apart.cycles
    if target is not SMALL and not outside:
        assert inside and plan.bytes < apart.bytes


def _joins(graph: Graph, node: int) -> bool:
    return isinstance(graph.nodes[node].op, CONCAT)


def test_what_a_copy_takes_is_known_to_the_schedule() -> None:
    """A command for each input, and its elements by the lanes of the vector unit."""
    graph, arrays = fires(WIDE, 1)
    plan = plan_network(graph, machine(WIDE), WIDE.numerics)
    program = check_exact(graph, {"x": arrays["x"]}, WIDE, plan)
    assert program.meta["plan"]["cycles"] == pytest.approx(plan.cycles)


def moved(kind: str) -> tuple[Graph, dict[str, np.ndarray]]:
    """Layers with a mover between them."""
    b = Builder()
    x = b.conv(b.input("x", (1, 4, 12, 10)), 12, 1, clip=(0.0, 6.0))
    order = tuple(np.arange(12).reshape(3, 4).T.reshape(-1).tolist())
    op: Op = {
        "gather": OPS["gather"](order, (12,), 1),
        "transpose": OPS["transpose"]((0, 1, 3, 2)),
        "channels last": OPS["transpose"]((0, 2, 3, 1)),
        "slice": OPS["slice"]((2, 1, 1), (11, 9, 12), (1, 2, 3), (2, 1, 3)),
        "reshape": OPS["reshape"]((1, 12, 30, 4)),
    }[kind]
    x = b.add(op, x)
    last = kind == "channels last"
    y = b.add(OPS["sigmoid"](), x) if last else b.conv(b.conv(x, 8, 3, clip=(0.0, 6.0)), 4, 1)
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return quantize_graph(graph, lambda _: True, ranges, Quantize(), WIDE.numerics).graph, b.arrays


@pytest.mark.parametrize(
    ("kind", "name"), spread(["gather", "transpose", "channels last", "slice", "reshape"], [*TARGETS])
)
def test_data_is_moved_inside_a_group(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = TARGETS[name]
    graph, arrays = moved(kind)
    plan = plan_network(graph, machine(target), target.numerics)
    program = check_exact(graph, {"x": arrays["x"]}, target, plan)
    assert program.meta["plan"]["cycles"] == pytest.approx(plan.cycles)
    mover = next(n for n in graph.nodes if n.op.moves_data)
    monkeypatch.setattr(type(mover.op), "local_space", lambda self, site: None)
    apart = plan_network(graph, machine(target), target.numerics)
    assert plan.cycles <= apart.cycles
    if target is WIDE:
        assert plan.bytes < apart.bytes


def branched(target: Target, outside: str) -> tuple[Graph, dict[str, np.ndarray]]:
    """A layer whose channels two others read by halves; `outside`: what else is a result."""
    b = Builder()
    x = whole = b.conv(b.input("x", (1, 4, 12, 10)), 8, 1, clip=(0.0, 6.0))
    halves = [b.add(OPS["slice"]((k,), (k + 4,), (1,), (1,)), x) for k in (0, 4)]
    y = b.conv(b.add(OPS["add"](), *(b.conv(h, 4, 3, clip=(0.0, 6.0)) for h in halves)), 4, 1)
    more = {"": (), "whole": (whole,), "half": (halves[1],), "both": (whole, halves[0])}[outside]
    graph = Graph(("x",), (y, *more), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return quantize_graph(graph, lambda _: True, ranges, Quantize(), target.numerics).graph, b.arrays


@pytest.mark.parametrize(("outside", "name"), spread(["", "whole", "half", "both"], [*TARGETS]))
def test_parts_of_one_value_are_cut_inside_a_group(
    outside: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are views of the value in external memory, where all of it may be wanted, too."""
    target = TARGETS[name]
    graph, arrays = branched(target, outside)
    plan = plan_network(graph, machine(target), target.numerics)
    check_exact(graph, {"x": arrays["x"]}, target, plan)
    monkeypatch.setattr(OPS["slice"], "local_space", lambda self, site: None)
    apart = plan_network(graph, machine(target), target.numerics)
    assert plan.cycles <= 1.03 * apart.cycles
    if target is WIDE and not outside:
        assert plan.bytes < apart.bytes
