"""What a search has found is taken by later ones of nearly the same network, and changes no plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npuflow.hw.target import Target
from npuflow.ir.graph import prune
from npuflow.search import parts
from npuflow.search.memory import SearchMemory
from npuflow.search.plan import plan_network
from tests.networks.harness import SMALL, local, machine
from tests.networks.small import mixed
from tests.tiers import often

ONE = local(SMALL, 1 << 14)
TWO = replace(ONE, compute=replace(ONE.compute, cores=2))


@pytest.mark.parametrize("target", often([ONE, TWO], 2), ids=["one core", "two cores"])
def test_plans_of_nearly_one_network_are_those_of_clean_searches(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = mixed(target.numerics)
    shorter = prune(whole.replaced(outputs=whole.nodes[-1].inputs[:1]))
    networks = [whole, shorter, whole]
    clean = [plan_network(one, machine(target), target.numerics) for one in networks]
    solved: list[str] = []
    usual = parts.tiled
    monkeypatch.setattr(parts, "tiled", lambda part, *more: solved.append(part.key) or usual(part, *more))
    memory, counts = SearchMemory(), []
    for one, wanted in zip(networks, clean, strict=True):
        assert plan_network(one, machine(target), target.numerics, memory=memory) == wanted
        counts.append(len(solved))
    assert counts[0] > 0 and counts[1] - counts[0] < counts[0] and counts[2] == counts[1]
    assert len(set(solved)) == len(solved)


def test_tilings_are_of_one_machine_and_level() -> None:
    memory, one = SearchMemory(), machine(ONE)
    held = memory.tilings(one, 2)
    assert memory.tilings(replace(one), 2) is held
    assert memory.tilings(one, 1) is not held and memory.tilings(machine(TWO), 2) is not held
