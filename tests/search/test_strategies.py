"""The strategies of the tiling search: all are data, what came of each is kept with the
plan, and each can be left out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from npuflow.base.errors import NpuflowError, RecipeError
from npuflow.base.plain import plain, typed
from npuflow.hw.target import Target
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.search.strategies import STRATEGIES, check_names, others_than, usable
from tests.networks.harness import SMALL, check_exact, local, machine
from tests.networks.small import mixed
from tests.tiers import often

ONE = local(SMALL, 1 << 14)
TWO = replace(ONE, compute=replace(ONE.compute, cores=2))


def planned(target: Target, *without: str, level: int = 3) -> TilingPlan:
    graph, _ = mixed(target.numerics)
    return plan_network(graph, machine(target), target.numerics, level, without=without)


def test_names_are_unique_and_said() -> None:
    assert len({s.name for s in STRATEGIES}) == len(STRATEGIES) and all(s.what for s in STRATEGIES)


@pytest.mark.parametrize("target", [ONE, TWO], ids=["one core", "two cores"])
def test_the_strategies_that_found_a_plan_find_it_again(target: Target) -> None:
    plan = planned(target)
    others = others_than(plan.origin)
    assert len(others) < len(STRATEGIES) and "bus x 0.2" not in others
    again = planned(target, *others)
    assert again.groups == plan.groups and again.cycles == plan.cycles
    assert len(again.tried) < len(plan.tried)


@pytest.mark.parametrize("target", [ONE, TWO], ids=["one core", "two cores"])
def test_the_plan_says_what_each_strategy_found(target: Target) -> None:
    plan = planned(target)
    taken = [t for t in plan.tried if t.origin == plan.origin]
    assert [t.cycles for t in taken] == [plan.cycles] == [min(t.cycles for t in plan.tried if t.cycles)]
    assert {t.result for t in plan.tried} <= {
        "scheduled", "estimated", "does not fit", "cannot win", "same plan", "no plan",
    }
    names = {s.name for s in usable(target.compute.cores, 3)}
    assert all(
        re.sub(r"(, overlapping)?(, reordered x \d)?(, on one core)?$", "", t.origin) in names
        for t in plan.tried
    )
    assert typed(TilingPlan, plain(plan)) == plan


@pytest.mark.parametrize(
    ("target", "every"),
    often([(TWO, 5), (ONE, 1), (TWO, 1)], 3), ids=["some, two cores", "one core", "two cores"],
)
def test_each_can_be_left_out(target: Target, every: int) -> None:
    """Each one, or every fifth; the winner too: the next best is taken, and its program is as exact."""
    best = planned(target)
    graph, inputs = mixed(target.numerics)
    for strategy in usable(target.compute.cores, 3)[::every]:
        plan = planned(target, strategy.name)
        behind = strategy.form in ("overlapping", "reordered", "one core")
        own = f", {strategy.name}" if behind else strategy.name
        assert not any(own in t.origin for t in plan.tried)
        assert plan.cycles >= best.cycles or plan.origin != best.origin
    check_exact(graph, inputs, target, planned(target, best.origin.split(",")[0], "overlapping"))


def test_a_plan_of_nothing_says_why() -> None:
    with pytest.raises(NpuflowError, match="no plan") as caught:
        planned(ONE, *(s.name for s in STRATEGIES))
    assert "without" in caught.value.hint


def test_unknown_names_are_errors_at_their_keys() -> None:
    check_names([s.name for s in STRATEGIES])
    with pytest.raises(NpuflowError, match="no strategy") as one:
        check_names(["overlaping"])
    assert one.value.where.key == "tiling.without[0]" and "overlapping" in one.value.hint
    with pytest.raises(RecipeError):
        check_names(["a", "b"])
