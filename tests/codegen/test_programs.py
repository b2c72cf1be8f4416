"""Small networks on every shipped target: exact, safe, near the schedule time;
refusals carry their numbers."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuflow import targets as shipped
from npuflow.base.errors import TargetError
from npuflow.base.plain import plain, typed
from npuflow.base.tables import read
from npuflow.hw.encode import decode, encode
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.program.codegen.commands import CommandList
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.quantise.config import Quantize
from npuflow.report.profile.measure import profile
from npuflow.schedule.jobs import Allocation
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.sim.hazards import hazards_of
from npuflow.testing.op import quantised, samples
from tests.networks import random_tilings
from tests.networks.harness import SMALL, build, check_exact, local, machine
from tests.networks.small import mixed
from tests.tiers import often

TARGETS = sorted(Path(str(shipped.__file__)).parent.glob("*.toml"))


def shipped_target(path: Path) -> Target:
    import tomllib

    target, faults = read(Target, tomllib.loads(path.read_text()))
    assert target is not None and not faults
    return target


@pytest.mark.parametrize("path", often(TARGETS, 6), ids=lambda p: p.stem)
def test_a_network_on_a_shipped_target(path: Path) -> None:
    target = shipped_target(path)
    graph, inputs = mixed(target.numerics)
    check_exact(graph, inputs, target)


@pytest.mark.parametrize("size", often([2048, 4096, 16384], 3))
def test_less_memory_more_tiles_same_integers(size: int) -> None:
    target = local(SMALL, size)
    graph, inputs = mixed(target.numerics)
    program = check_exact(graph, inputs, target)
    assert len(program.commands[0]) > 50


def test_followers_stay_in_local_memory() -> None:
    """Sigmoid and Add join their convolutions: the same integers, fewer bytes, fewer cycles."""
    graph, inputs = mixed(SMALL.numerics)
    alone = plan_network(graph, machine(SMALL), SMALL.numerics, level=0)
    joined = plan_network(graph, machine(SMALL), SMALL.numerics, level=3)
    assert max(len(g.nodes) for g in alone.groups) == 1
    assert max(len(g.nodes) for g in joined.groups) > 1
    programs = [profile(check_exact(graph, inputs, SMALL, plan)).totals() for plan in (alone, joined)]
    assert programs[1]["bytes"] < programs[0]["bytes"]
    assert programs[1]["cycles"] < programs[0]["cycles"]


@pytest.mark.parametrize("seed", often(range(6), 3))
def test_any_tiling_of_groups(seed: int) -> None:
    target = local(SMALL, 1 << 16)
    graph, inputs = mixed(target.numerics)
    plan = random_tilings.plan(graph, machine(target), target.numerics, random.Random(seed), level=3)
    assert any(len(g.nodes) > 1 for g in plan.groups)
    check_exact(graph, inputs, target, plan)


def test_two_channels() -> None:
    target = replace(local(SMALL, 4096), dma=replace(SMALL.dma, channels=2))
    graph, inputs = mixed(target.numerics)
    program = check_exact(graph, inputs, target)
    queues = {row["queue"] for row in profile(program).commands()}
    assert {"LOAD0", "LOAD1", "STORE0"} <= queues


def test_same_bytes_twice_and_plan_survives_json() -> None:
    graph, _ = mixed(SMALL.numerics)
    plan = plan_network(graph, machine(SMALL), SMALL.numerics)
    again = typed(TilingPlan, plain(plan))
    assert again == plan
    assert generate(graph, plan, SMALL).to_bytes() == generate(graph, again, SMALL).to_bytes()


def test_schedule_time_is_near_the_clock() -> None:
    graph, _ = mixed(SMALL.numerics)
    found = profile(build(graph, local(SMALL, 1 << 14)))
    total = found.totals()
    assert abs(total["schedule_cycles"] / total["cycles"] - 1) < 0.15
    assert abs(total["schedule_bytes"] / total["bytes"] - 1) < 0.05
    assert total["bound_cycles"] <= total["cycles"]
    assert total["bound_bytes"] <= total["bytes"]


def test_a_weaker_dma_moves_both_clocks() -> None:
    graph, _ = mixed(SMALL.numerics)
    slow = replace(SMALL, dma=replace(SMALL.dma, setup_cycles=400))
    apart = [plan_network(graph, machine(t), t.numerics, level=1) for t in (SMALL, slow)]
    fast, late = (
        profile(build(graph, SMALL, apart[0])).totals(),
        profile(build(graph, slow, apart[1])).totals(),
    )
    assert late["cycles"] > 1.5 * fast["cycles"]
    assert late["schedule_cycles"] > 1.5 * fast["schedule_cycles"]


def test_refusal_states_demand_bound_gap_and_suggestions() -> None:
    graph, _ = quantised(samples("softmax")[0], SMALL.numerics, Quantize())
    with pytest.raises(TargetError) as caught:
        plan_network(graph, machine(local(SMALL, 256)), SMALL.numerics)
    error = caught.value
    assert "256" in error.message and "too few" in error.message
    demand = int(error.message.split(" needs ")[1].split()[0])
    assert f"memory.local_bytes >= {demand}" in error.hint
    # the lever works: with exactly the demand it fits, with one alignment less it does not
    plan_network(graph, machine(local(SMALL, demand)), SMALL.numerics)
    with pytest.raises(TargetError):
        plan_network(graph, machine(local(SMALL, demand - 16)), SMALL.numerics)


def test_every_wait_counts() -> None:
    """No wait can be dropped: without it the happens-before check finds a race."""
    graph, _ = mixed(SMALL.numerics)
    program = build(graph, local(SMALL, 4096))
    words = program.commands[0]
    rng = np.random.default_rng(0)
    waiting = [i for i in range(len(words)) if decode(words[i]).wait]
    for i in rng.choice(waiting, 25, replace=False):
        command = decode(words[i])
        for q, count in enumerate(command.wait):
            if not count:
                continue
            wait = [0 if n == q else c for n, c in enumerate(command.wait)]
            changed = words.copy()
            changed[i] = encode(
                command.opcode, command.fields, queue=command.queue, node=command.node, wait=wait
            )
            broken = Program(
                program.target_fingerprint, program.meta, (changed,), program.const, program.hosts
            )
            assert hazards_of(broken, order_of(broken)), f"command {i} does not need to wait for queue {q}"


def test_programs_beyond_sixteen_bits_of_counts() -> None:
    """70,000 loads, each read by one computation: waits stay within 2^15 and nothing
    is waited for too early."""
    commands = CommandList(0, 1)
    slots = [Allocation(i * 64, i * 64 + 64, 64, (), 1, ()) for i in range(2)]
    for i in range(70_000):
        commands.load({}, [(slots[i % 2], None)], 0, None, 0)
        if i % 7 == 0:
            commands.compute("FILL", {"y": slots[i % 2].low}, [(slots[i % 2], None)], 0, 0)
    retired = [0] * 4
    known = [[0] * 4 for _ in range(4)]
    for command, wait in zip(commands.commands, commands._waits(), strict=True):
        q = command.queue
        for other, count in enumerate(wait or (0, 0, 0, 0)):
            near = known[q][other] + ((count % 65536 - known[q][other] + 32768) % 65536 - 32768)
            assert near == count <= retired[other]
            known[q][other] = max(known[q][other], count)
        for other, count in command.needs.items():
            assert (
                max(known[p][other] if p == q else 0 for p in range(4)) >= count or known[q][other] >= count
            )
        retired[q] += 1
        known[q][q] = retired[q]


def test_empty_of_integers() -> None:
    graph, _ = mixed(SMALL.numerics)
    nothing = Graph((), (), (), {}, {})
    assert plan_network(nothing, machine(SMALL), SMALL.numerics).groups == ()
    assert len(graph.nodes) > 5
