"""Loads that cores share: which meet, that nothing waits in a circle, and that results and cycles are what they were."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from npuflow.base.errors import TargetError
from npuflow.engine.profile import profile
from npuflow.engine.profile.closed import apart
from npuflow.engine.program.container import Program
from npuflow.engine.tiling.meet import meetings
from tests.codegen import random_groups, random_networks
from tests.codegen.harness import build, check_exact, machine


def test_equal_sequences_meet_in_order() -> None:
    assert meetings(["abca", "abca"]) == [[(0, k), (1, k)] for k in range(4)]


def test_cores_that_want_less_stay_out() -> None:
    assert meetings(["abc", "ac", "c"]) == [[(0, 0), (1, 0)], [(0, 1)], [(0, 2), (1, 1), (2, 0)]]


@pytest.mark.parametrize("seed", range(200))
def test_meetings_follow_every_sequence(seed: int) -> None:
    rng = random.Random(seed)
    sequences = [[rng.choice("abcde") for _ in range(rng.randint(0, 8))] for _ in range(rng.randint(1, 4))]
    found = meetings(sequences)
    for core, own in enumerate(sequences):
        assert [i for m in found for c, i in m if c == core] == list(range(len(own)))
    for meeting in found:
        assert len({sequences[c][i] for c, i in meeting}) == 1 and all(a[0] < b[0] for a, b in pairwise(sorted(meeting)))


def masks(program: Program) -> list[int]:
    return [c.number("mask") for core in program.decoded for c in core if c.opcode == "LOAD"]


def test_results_are_those_of_plain_loads_and_bytes_cross_once() -> None:
    """The same plans on machines that share loads and that do not, against the reference; closed form and clock agree."""
    shared = 0
    for seed in range(9, 16):
        rng = random.Random(seed)
        target = random_networks.target(rng)
        target = replace(target, compute=replace(target.compute, cores=max(2, target.compute.cores)))
        one, other = (replace(target, dma=replace(target.dma, multicast=m)) for m in (True, False))
        try:
            graph, inputs = random_networks.network(rng, target.numerics)
            plan, _ = random_groups.plan(graph, machine(one), target.numerics, rng)
        except TargetError:
            continue
        programs = build(graph, one, plan), build(graph, other, plan)
        assert not any(masks(programs[1]))
        if not any(masks(programs[0])):
            continue
        shared += 1
        check_exact(graph, inputs, one, plan)
        first, second = map(profile, programs)
        saved = second.totals()["bytes"] - first.totals()["bytes"]
        assert saved > 0 and not apart(first)
        if shared == 3:
            break
    assert shared == 3
