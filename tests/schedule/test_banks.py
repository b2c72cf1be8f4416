"""Lives moved to other banks: fewer predicted conflicts, fewer cycles waited on the clock,
nothing on anybody's bytes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from npuflow.hw.target import Memory, Target
from npuflow.report.profile import profile
from npuflow.schedule import bank_layout as banks
from npuflow.schedule.allocate import Layout, Lifetime, check_layout
from npuflow.schedule.arrange import arrange
from npuflow.schedule.bank_layout import conflicts, spread
from npuflow.search.plan import plan_network
from tests.networks.harness import SMALL, build, check_exact, machine
from tests.networks.random_networks import network, target
from tests.networks.small import mixed

MEMORY = Memory(local_bytes=4096, local_banks=4, bank_ports=1, local_align=16)
LOAD, ARRAY = frozenset({"LOAD"}), frozenset({"TENSOR"})


def test_what_is_used_at_once_goes_to_two_banks() -> None:
    lives = [Lifetime("a", 256, 0, 3), Lifetime("b", 256, 0, 3)]
    layout = arrange(lives, 16)
    who = {(0, 0): {"a": LOAD, "b": ARRAY}}
    assert conflicts(lives, layout.addresses, who, MEMORY) == 256
    found = spread(lives, layout, who, MEMORY, 16)
    assert conflicts(lives, found.addresses, who, MEMORY) == 0
    assert {a // 1024 for a in found.addresses.values()} != {0} and found.bound == layout.bound
    check_layout(lives, found.addresses, MEMORY.local_bytes, 16)


def test_one_engine_is_in_nobodys_way() -> None:
    lives = [Lifetime("a", 256, 0, 3), Lifetime("b", 256, 0, 3)]
    layout = arrange(lives, 16)
    assert spread(lives, layout, {(0, 0): {"a": LOAD, "b": LOAD}}, MEMORY, 16) is layout


def test_nothing_waits_longer_for_its_bytes() -> None:
    """The only other bank was left a step ago by somebody; where the life lies, nobody was before."""
    lives = [Lifetime("old", 3072, 0, 3), Lifetime("a", 512, 4, 5), Lifetime("b", 512, 4, 5)]
    layout = Layout({"old": 1024, "a": 0, "b": 512}, 4096, 3072)
    who = {(0, 0): {"a": LOAD, "b": ARRAY}}
    assert spread(lives, layout, who, MEMORY, 16) is layout


@pytest.mark.parametrize("seed", range(40))
def test_random_layouts_stay_legal_and_never_get_worse(seed: int) -> None:
    rng = random.Random(seed)
    lives = [
        Lifetime(f"v{i}", rng.randint(1, 500), t := rng.randint(0, 9), t + rng.randint(0, 3))
        for i in range(rng.randint(2, 16))
    ]
    layout = arrange(lives, 16)
    memory = replace(
        MEMORY, local_bytes=-(-max(layout.total, 1024) // 1024) * 1024, local_banks=rng.choice((2, 4, 8))
    )
    kinds = ("LOAD", "TENSOR", "VECTOR", "STORE")
    who = {
        (0, p): {
            v.name: frozenset(rng.sample(kinds, rng.randint(1, 2))) for v in lives if v.first <= p <= v.last
        }
        for p in range(13)
    }
    found = spread(lives, layout, who, memory, 16)
    check_layout(lives, found.addresses, memory.local_bytes, 16)
    assert conflicts(lives, found.addresses, who, memory) <= conflicts(lives, layout.addresses, who, memory)


def banked(target_: Target, count: int = 8, size: int = 16384) -> Target:
    return replace(
        target_,
        memory=replace(target_.memory, local_bytes=size, local_banks=count, bank_ports=1, local_bandwidth=8),
    )


def test_the_clock_waits_less(monkeypatch: pytest.MonkeyPatch) -> None:
    small = banked(SMALL)
    graph, inputs = mixed(small.numerics)
    plan = plan_network(graph, machine(small), small.numerics, level=0)
    after = profile(check_exact(graph, inputs, small, plan))
    monkeypatch.setattr(banks, "spread", lambda lives, layout, *_: layout)
    before = profile(build(graph, small, plan))
    assert after.timeline.banks.sum() < 0.8 * before.timeline.banks.sum()
    assert after.cycles < before.cycles


@pytest.mark.parametrize("seed", range(4))
def test_random_networks(seed: int) -> None:
    rng = random.Random(8200 + seed)
    machine_ = banked(target(rng), rng.choice((2, 4, 8)), 8192)
    graph, inputs = network(rng, machine_.numerics)
    check_exact(
        graph, inputs, machine_, plan_network(graph, machine(machine_), machine_.numerics, level=seed % 4)
    )
