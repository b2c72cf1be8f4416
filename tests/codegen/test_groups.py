"""Groups of several parts compute what single parts do: drawn at random, and as the search joins them at every level."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from npuflow.base.errors import TargetError
from npuflow.engine.tiling.plan import plan_network
from npuflow.ir.graph import Graph
from tests.codegen import random_groups, random_networks
from tests.codegen.harness import check_exact, machine

LEVELS = (0, 2, 3, 5)
SHARD = 100


def drawn(seed: int, count: Counter[str]) -> None:
    """Any legal groups, strips, cores and kept values."""
    rng = random.Random(seed)
    target = random_networks.target(rng)
    try:
        graph, feed = random_networks.network(rng, target.numerics)
        plan, several = random_groups.plan(graph, machine(target), target.numerics, rng)
    except TargetError:
        count["refused"] += 1
        return
    program = check_exact(graph, feed, target, plan, exact_only=seed % 2 == 0)
    count["several"] += several
    count["kept"] += len(plan.kept)
    count["cores"] += sum(g.cores[1] > 1 for g in plan.groups)
    count["copies"] += sum(c.opcode == "COPY" for core in program.decoded for c in core)


def planned(seed: int, count: Counter[str]) -> None:
    """As the search joins them."""
    rng = random.Random(seed)
    target = random_networks.target(rng)
    level = LEVELS[seed % len(LEVELS)]
    try:
        graph, feed = random_networks.network(rng, target.numerics, rng.randint(4, 10))
        plan = plan_network(graph, machine(target), target.numerics, level)
    except TargetError:
        count["refused"] += 1
        return
    check_exact(graph, feed, target, plan, exact_only=seed % 2 == 0)
    count["several"] += sum(len(g.parts) > 1 for g in plan.groups)
    count["cores"] += sum(g.cores[1] > 1 for g in plan.groups)


def campaign(seeds: range, check) -> Counter[str]:
    count: Counter[str] = Counter()
    for seed in seeds:
        try:
            check(seed, count)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert count["refused"] < 0.3 * len(seeds)
    return count


def test_groups_drawn_at_random() -> None:
    count = campaign(range(30), drawn)
    assert count["several"] > 30 and count["kept"] > 10 and count["cores"] > 5 and count["copies"] > 5, count


def test_groups_of_the_search() -> None:
    count = campaign(range(24), planned)
    assert count["several"] > 10 and count["cores"] > 3, count


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, SHARD))
def test_many_groups_drawn_at_random(first: int) -> None:
    campaign(range(first, first + SHARD), drawn)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, SHARD))
def test_many_groups_of_the_search(first: int) -> None:
    campaign(range(first, first + SHARD), planned)


def test_an_empty_network_has_no_groups() -> None:
    target = random_networks.target(random.Random(0))
    assert plan_network(Graph((), (), (), {}, {}), machine(target), target.numerics, 3).groups == ()
