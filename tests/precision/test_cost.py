"""Prices of mixtures: what a search asks for again is not computed again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npuflow.base.errors import FitError
from npuflow.strategies import FLOAT, NARROW, WIDE
from npuflow.tune.precision.cost import CostModel
from npuflow.tune.precision.group_cost import GroupCost
from npuflow.tune.precision.levels import LevelTypes
from npuflow.tune.precision.problem import cost_of
from tests.precision.harnesses import BOTH, harness_of, mixed_net
from tests.precision.test_float_levels import NUMERICS, TARGET


@pytest.mark.parametrize("kinds", [3, 4])
def test_a_step_costs_the_difference_of_the_mixtures(monkeypatch: pytest.MonkeyPatch, kinds: int) -> None:
    """`kinds`: levels; of four the last is a float type of the NPU."""
    harness = harness_of(mixed_net(), numerics=NUMERICS if kinds == 4 else BOTH)
    if kinds == 4:
        harness = replace(harness, types=LevelTypes(floats=("bf16",)))
    cost = cost_of(harness, replace(TARGET, numerics=harness.network.numerics))
    asked, part = list[int](), CostModel._part

    def counted(self: CostModel, group: GroupCost, layers: Any, crossing: Any, levels: Any) -> Any:
        asked.append(len(layers))
        return part(self, group, layers, crossing, levels)

    monkeypatch.setattr(CostModel, "_part", counted)
    rng = np.random.default_rng(2)
    usual = {"activation": (NARROW, WIDE, FLOAT), "weight": (NARROW,)}
    choices = [(*usual[kind], *harness.types.float_levels) for kind, _ in harness.names]
    for _ in range(20):
        levels = tuple(int(rng.choice(some)) for some in choices)
        direct = cost.cycles(levels)
        for unit, some in enumerate(choices):
            level = int(rng.choice(some))
            other = (*levels[:unit], level, *levels[unit + 1 :])
            assert cost.delta(levels, unit, level) == pytest.approx(cost.cycles(other) - direct, abs=1e-6)
        before = len(asked)
        assert cost.cycles(levels) == direct and len(asked) == before


def test_a_network_without_tiles_is_explained_as_by_the_tiling_search() -> None:
    """The search for widths plans first: its refusal has the constraints, and what would make the plan."""
    harness = harness_of(mixed_net())
    memory = replace(TARGET.memory, local_bytes=128, local_align=16)
    cost = cost_of(harness, replace(TARGET, numerics=harness.network.numerics, memory=memory))
    with pytest.raises(FitError) as caught:
        _ = cost.layers
    assert "minimal set of conflicting constraints" in caught.value.because
    assert "target.memory.local_bytes >= " in caught.value.hint and ": fits, " in caught.value.hint
