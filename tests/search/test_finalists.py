"""Which of several finished plans is taken."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from npuflow.schedule import tuned
from npuflow.search import finalists
from npuflow.search.plan import TilingPlan, plan_network
from tests.networks.harness import SMALL, check_exact, machine
from tests.networks.random_networks import network
from tests.networks.small import mixed


def test_a_plan_of_very_many_tiles_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the search's sums for cycles, says so, and its program is as exact as others."""
    graph, inputs = mixed(SMALL.numerics)
    usual = plan_network(graph, machine(SMALL), SMALL.numerics, 3)
    assert usual.replayed == usual.cycles > 0
    monkeypatch.setattr(tuned, "NEVER_SCHEDULED", 0)
    monkeypatch.setattr(finalists, "schedule_of", None)
    plan = plan_network(graph, machine(SMALL), SMALL.numerics, 3)
    assert plan.replayed == 0 and plan.cycles == pytest.approx(usual.cycles, rel=0.5)
    check_exact(graph, {k: np.asarray(v) for k, v in inputs.items()}, SMALL, plan)


@pytest.mark.parametrize("seed", [6, 7])
def test_several_cores_are_not_slower_than_one_of_them(seed: int) -> None:
    """Small networks that would lose more by exchanging borders than they win by
    sharing the work run on one core."""
    graph, inputs = network(random.Random(seed), SMALL.numerics)
    several = replace(SMALL, compute=replace(SMALL.compute, cores=2))
    one = plan_network(graph, machine(SMALL), SMALL.numerics, 3)
    plan = plan_network(graph, machine(several), several.numerics, 3)
    assert plan.cycles <= one.cycles
    check_exact(graph, inputs, several, plan)


def test_more_plans_are_scheduled_far_from_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first plans of a large network take the effort of all, and a better one may come behind them."""
    graph, inputs = mixed(SMALL.numerics)

    def looked(far: float, tiles: float) -> TilingPlan:
        monkeypatch.setattr(tuned, "SCHEDULED_TILES", 1)
        monkeypatch.setattr(tuned, "FAR", far)
        monkeypatch.setattr(tuned, "FAR_TILES", tiles)
        return plan_network(graph, machine(SMALL), SMALL.numerics, 3)

    usual = plan_network(graph, machine(SMALL), SMALL.numerics, 3)
    near, far, some = looked(inf, inf), looked(0.0, inf), looked(0.0, 1)
    assert (far.cycles, far.tried) == (usual.cycles, usual.tried)
    assert len(near.tried) < len(far.tried) and near.cycles >= far.cycles
    assert some.tried == near.tried
    check_exact(graph, {k: np.asarray(v) for k, v in inputs.items()}, SMALL, near)


def test_a_plan_that_is_not_scheduled_ends_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The effort is that of schedules: behind a plan of very many tiles the others are looked at, too."""
    graph, _ = mixed(SMALL.numerics)
    usual = plan_network(graph, machine(SMALL), SMALL.numerics, 3)
    for name, value in (("NEVER_SCHEDULED", 0), ("SCHEDULED_TILES", 1), ("FAR", inf)):
        monkeypatch.setattr(tuned, name, value)
    plan = plan_network(graph, machine(SMALL), SMALL.numerics, 3)
    default = [one.origin for one in usual.tried if "overlapping" not in one.origin]
    assert [one.origin for one in plan.tried] == default and len(default) > 1
