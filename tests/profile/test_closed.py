"""The closed form of plans drawn at random: any groups, strips, cores, buffers and tensors that stay, as near as the bars."""

from __future__ import annotations

import random

import pytest

from npuflow.base.errors import TargetError
from npuflow.engine.profile import profile
from npuflow.engine.profile.closed import apart, compare
from tests.codegen import random_groups, random_networks
from tests.codegen.harness import build, machine

SHARD = 100


def judged(seed: int) -> bool:
    """Whether the seed gives a program; its closed form is then within every bar."""
    rng = random.Random(seed)
    target = random_networks.target(rng)
    try:
        graph, _ = random_networks.network(rng, target.numerics)
        plan, _ = random_groups.plan(graph, machine(target), target.numerics, rng)
    except TargetError:
        return False
    found = profile(build(graph, target, plan))
    assert not apart(found), f"seed {seed}: " + "; ".join(map(str, apart(found)))
    return bool(compare(found))


def test_plans_drawn_at_random() -> None:
    assert sum(map(judged, range(24))) > 16


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 2000, SHARD))
def test_many_plans_drawn_at_random(first: int) -> None:
    assert sum(map(judged, range(first, first + SHARD))) > 0.6 * SHARD
