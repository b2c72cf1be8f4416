"""Plans where bytes count beside cycles: never more traffic, and by default nothing changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npuflow.report.profile import profile
from npuflow.search.plan import plan_network
from tests.networks.harness import SMALL, build, local, machine
from tests.networks.small import mixed
from tests.tiers import often


@pytest.mark.parametrize("size", often([4096, 2048, 1 << 14], 3))
def test_bytes_that_count_are_fewer(size: int) -> None:
    target = local(SMALL, size)
    graph, _ = mixed(target.numerics)
    fast = plan_network(graph, machine(target), target.numerics)
    lean = plan_network(graph, replace(machine(target), byte_cost=1000.0), target.numerics)
    moved = [profile(build(graph, target, plan)).totals()["bytes"] for plan in (fast, lean)]
    assert lean.bytes <= fast.bytes and moved[1] <= moved[0]
    assert fast.cycles <= lean.cycles


def test_a_byte_that_costs_nothing_changes_nothing() -> None:
    graph, _ = mixed(SMALL.numerics)
    plan = plan_network(graph, replace(machine(SMALL), byte_cost=0.0), SMALL.numerics)
    assert build(graph, SMALL, plan).to_bytes() == build(graph, SMALL).to_bytes()
