"""Whether a mixture holds a budget is known by few samples where it does not, and is what all samples say."""

from __future__ import annotations

import pytest

from npuflow.hw.target import Target
from npuflow.strategies import FLOAT, NARROW, WIDE, Budget, Levels
from npuflow.tune import judge as judging
from npuflow.tune.judge import PartialOutputs
from npuflow.tune.precision.problem import SearchProblem, cost_of
from npuflow.tune.precision.sensitivity import noises
from tests.precision.harnesses import BOTH, harness_of, mixed_net


@pytest.fixture(autouse=True)
def looked(monkeypatch: pytest.MonkeyPatch) -> None:
    """These networks are so small that their outputs take longer than they do."""
    monkeypatch.setattr(judging, "LOOKED", 1)


def problem(budget: float, corrected: bool, said: list[str]) -> SearchProblem:
    harness = harness_of(mixed_net().replaced(outputs=("y",)), held=14)
    cost = cost_of(harness, Target(numerics=BOTH))
    noise = noises(harness, 2, lambda done, count: None)
    return SearchProblem(harness, cost, Budget(budget, 1.1), lambda: list(noise), 2, corrected, said.append)


def mixtures(one: SearchProblem) -> list[Levels]:
    count, first = len(one.harness.names), len(one.harness.network.groups)
    half = tuple(WIDE if k % 2 else NARROW for k in range(count))
    no_input = tuple(FLOAT if k == 0 else WIDE if k < first else NARROW for k in range(count))
    return [(NARROW,) * count, half, no_input, (WIDE,) * count]


@pytest.mark.parametrize("corrected", [False, True])
def test_mixtures_hold_as_by_their_verdict(corrected: bool) -> None:
    plain = problem(150.0, corrected, [])
    found = [plain.budget.level(plain.verified(levels)) for levels in mixtures(plain)]
    for level in found:
        for budget in (level - 1e-6, level + 1e-6):
            one, whole = problem(budget, corrected, []), problem(budget, corrected, [])
            for levels in mixtures(one):
                outputs = whole.verified(levels)
                assert one.holds(levels) == one.holds(levels) == whole.budget.holds(outputs)
                assert list(one.verified(levels)) == list(outputs)


def test_a_mixture_that_misses_is_not_run_on_all_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    ran, more = list[int](), PartialOutputs._more

    def counted(self: PartialOutputs, stop: int) -> None:
        ran.append(stop - self.count)
        more(self, stop)

    monkeypatch.setattr(PartialOutputs, "_more", counted)
    said: list[str] = []
    one = problem(150.0, True, said)
    narrow = (NARROW,) * len(one.harness.names)
    assert not one.holds(narrow)
    assert ran == [judging.AT_ONCE] * 2               # with and without corrections
    assert "misses the budget" in said[-1]
    assert len(one.verified(narrow)) == 1 and sum(ran) > 2 * 14
    assert "dB" in said[-1]
