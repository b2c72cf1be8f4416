"""Loads that cores share: which meet, that nothing waits in a circle, and that results
and cycles are what they were."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from npuflow.base.errors import TargetError
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS
from npuflow.program.codegen.dma import STRIDES, box_copy, in_step
from npuflow.program.container import Program
from npuflow.quantise.config import Quantize
from npuflow.report.profile import profile
from npuflow.report.profile.schedule import apart
from npuflow.schedule.build import meetings
from npuflow.schedule.choice import TileChoice
from npuflow.schedule.frame import Frame, Topology
from npuflow.schedule.groups import Cut, FusedOp, FusionGroup
from npuflow.schedule.tuned import MEETING_AHEAD
from npuflow.search.plan import LowerBounds, TilingPlan
from npuflow.testing.quantised import quantize_graph
from tests.networks import random_groups, random_networks
from tests.networks.harness import SMALL, build, check_exact, local, machine
from tests.networks.random_tilings import FREE
from tests.networks.small import Builder


def sharing(cores: int) -> Target:
    target = local(SMALL, 1 << 14)
    return replace(
        target, compute=replace(target.compute, cores=cores), dma=replace(target.dma, multicast=True)
    )


def test_equal_sequences_meet_in_order() -> None:
    assert meetings(["abca", "abca"]) == [[(0, k), (1, k)] for k in range(4)]


def test_cores_that_want_less_stay_out() -> None:
    assert meetings(["abc", "ac", "c"]) == [[(0, 0), (1, 0)], [(0, 1)], [(0, 2), (1, 1), (2, 0)]]


def test_a_core_does_not_wait_for_the_end_of_another_one_s_work() -> None:
    """Rows at the border of two cores' parts: the last of one, the first of the other."""
    apart, near = MEETING_AHEAD + 1, MEETING_AHEAD - 1
    for between, shared in ((apart, False), (near, True)):
        first = [f"a{i}" for i in range(between)]
        found = meetings([["w", *first, "border"], ["w", "border", *(f"b{i}" for i in range(between))]])
        assert [(0, 0), (1, 0)] in found
        assert ([(0, between + 1), (1, 1)] in found) == shared
        assert ([(1, 1)] in found) != shared


@pytest.mark.parametrize("seed", range(200))
def test_meetings_follow_every_sequence(seed: int) -> None:
    rng = random.Random(seed)
    sequences = [[rng.choice("abcde") for _ in range(rng.randint(0, 8))] for _ in range(rng.randint(1, 4))]
    found = meetings(sequences)
    for core, own in enumerate(sequences):
        assert [i for m in found for c, i in m if c == core] == list(range(len(own)))
    for meeting in found:
        assert len({sequences[c][i] for c, i in meeting}) == 1 and all(
            a[0] < b[0] for a, b in pairwise(sorted(meeting))
        )


def masks(program: Program) -> list[int]:
    return [c.number("mask") for core in program.decoded for c in core if c.opcode == "LOAD"]


def test_results_are_those_of_plain_loads_and_bytes_cross_once() -> None:
    """The same plans on machines that share loads and that do not, against the reference;
    schedule time and clock agree."""
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


def quantised(b: Builder, y: str, target: Target) -> Graph:
    graph = Graph(("x",), (y,), tuple(b.nodes), b.values, b.consts)
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    return quantize_graph(graph, lambda _: True, ranges, Quantize(), target.numerics).graph


def planned(
    graph: Graph, target: Target, kept: Sequence[str], *groups: tuple[Cut, dict[str, int]]
) -> TilingPlan:
    """One group for each integer layer: how cores share it, and tiles of so much of some
    axes and all of the others."""
    topology, found = Topology(graph, machine(target), target.numerics), []
    for node, (cores, sizes) in zip(
        (n for n in topology.order if n not in topology.moving), groups, strict=True
    ):
        held = tuple((v, 1) for v in topology.needed((node,)) if v in kept)
        group = FusionGroup((FusedOp((node,), None),), FREE, cores=cores, held=held)
        (layer,) = Frame(topology, group, frozenset(kept)).layers
        axes = {a.name: sizes.get(a.name, a.size) for a in layer.axes}
        choice = TileChoice(tuple(axes.items()), tuple(axes), (2,) * len(layer.streams), 0)
        found.append(replace(group, parts=(FusedOp((node,), choice),)))
    return TilingPlan(tuple(found), LowerBounds(0, 0, 0, 0), 0, tuple(kept))


def agreed(graph: Graph, inputs: dict[str, np.ndarray], target: Target, plan: TilingPlan) -> Program:
    """Exact, and byte for byte and cycle for cycle what the schedule time says."""
    program = check_exact(graph, inputs, target, plan)
    found = profile(program)
    groups = program.meta["plan"]["groups"]
    assert sum(g["bytes"] for g in groups) == found.totals()["bytes"]
    assert sum(g["cycles"] for g in groups) == pytest.approx(found.cycles, rel=0.01)
    return program


def test_tiles_of_equal_bytes_keep_no_core_from_the_load_that_both_make() -> None:
    """The first core's second weights are the second core's first ones; had those met,
    the input would come in twice."""
    target, b = sharing(2), Builder()
    x = b.input("x", (1, 8, 9, 9))
    weights = b.rng.normal(size=(16, 8, 1, 1)).astype(np.float32)
    weights[8:12] = weights[4:8]
    b.arrays["w"] = weights
    b.values["w"], found = constant("w", weights)
    b.consts.update(found)
    graph = quantised(b, b.add(OPS["conv"]((1, 1)), x, "w"), target)
    program = agreed(graph, {"x": b.arrays["x"]}, target, planned(graph, target, (), ((1, 2), {"co": 4})))
    assert masks(program).count(3) == 2 and len(masks(program)) == 6


def test_borders_come_to_all_cores_at_once_however_wide_their_buffers_are() -> None:
    """The last column that two cores have made is read by none: the third core has no room
    for it, and shares the loads."""
    target, b = sharing(3), Builder()
    kept = b.conv(b.input("x", (1, 4, 8, 9)), 4, 1)
    y = b.add(OPS["conv"]((2, 2), (2, 2)), kept, b.const((6, 4, 2, 2), 0.2))
    graph = quantised(b, y, target)
    plan = planned(graph, target, (kept,), ((2, 2), {}), ((1, 3), {}))
    assert sorted(m for m in masks(agreed(graph, {"x": b.arrays["x"]}, target, plan)) if m) == [
        3,
        3,
        5,
        5,
        6,
        6,
    ]


@pytest.mark.parametrize("seed", range(50))
def test_copies_in_step_are_the_same_copies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 6)))
    box = tuple((int(a), int(rng.integers(a + 1, n + 1))) for n in shape for a in [rng.integers(0, n)])
    wider = [
        tuple((int(a - rng.integers(0, 3)), int(b + rng.integers(0, 3))) for a, b in box) for _ in range(3)
    ]
    copies = [box_copy("DATA", 100, shape, box, 0, 2, layout) for layout in (box, *wider)]
    found = in_step(copies)
    assert found is not None and len({(c["dims"], c["external_strides"]) for c in found}) == 1
    for one, other in zip(copies, found, strict=True):
        assert moved(one) == moved(other)
        assert all(one[k] == other[k] for k in one.keys() - {"dims", *STRIDES})



def moved(copy: dict) -> list[list[int]]:
    """Where each element comes from, and where it goes, in order."""
    index = np.indices(copy["dims"]).reshape(len(copy["dims"]), -1)
    return [(np.array(copy[name]) @ index).tolist() for name in STRIDES]
