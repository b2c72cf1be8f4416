"""Targets of several cores drawn at random, and networks on them, by random plans and by the search."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from npuflow.base.errors import TargetError
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.search.plan import plan_network
from tests.networks import random_groups, random_networks
from tests.networks.harness import check_exact, machine

Feed = Mapping[str, np.ndarray]


def several_cores(rng: random.Random) -> Target:
    target = random_networks.target(rng)
    compute = replace(target.compute, cores=rng.randint(2, 4))
    memory = replace(target.memory, local_bytes=max(1 << 14, target.memory.local_bytes))
    return replace(target, compute=compute, memory=memory)


def check_random(graph: Graph, feed: Feed, target: Target, rng: random.Random) -> None:
    try:
        plan, _ = random_groups.plan(graph, machine(target), target.numerics, rng)
    except TargetError:
        pytest.skip("a layer fits no tile")
    check_exact(graph, dict(feed), target, plan)


def check_planned(graph: Graph, feed: Feed, target: Target) -> None:
    try:
        plan = plan_network(graph, machine(target), target.numerics)
    except TargetError:
        pytest.skip("a layer fits no tile")
    check_exact(graph, dict(feed), target, plan)
