"""Prices of mixtures: what a search asks for again is not computed again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from npuflow.engine.precision.cost import CostModel, Together
from npuflow.engine.precision.problem import cost_of
from npuflow.hw.target import Target
from tests.precision.rigs import BOTH, mixed_net, rig_of


def test_prices_that_were_asked_for_are_those_of_their_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_of(mixed_net())
    cost, asked, group_of = cost_of(rig, Target(numerics=BOTH)), list[tuple[int, ...]](), CostModel._group

    def counted(self: CostModel, group: Together, levels: Sequence[int]) -> float:
        asked.append(tuple(levels))
        return group_of(self, group, levels)

    monkeypatch.setattr(CostModel, "_group", counted)
    rng, count, narrow = np.random.default_rng(2), len(rig.network.groups), (0,) * len(rig.network.weights)
    for _ in range(20):
        levels = (*map(int, rng.integers(0, 3, count)), *narrow)
        direct = sum(group_of(cost, group, levels) for group in cost.groups)
        assert cost.cycles(levels) == direct
        for unit in range(count):
            other = (*levels[:unit], (levels[unit] + 1) % 3, *levels[unit + 1 :])
            assert cost.delta(levels, unit, other[unit]) == pytest.approx(cost.cycles(other) - direct)
        before = len(asked)
        assert cost.cycles(levels) == direct and len(asked) == before
