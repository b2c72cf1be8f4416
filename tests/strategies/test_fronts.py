"""Searches for a Pareto front on networks of fusion groups: none beats trying all mixtures, and the integer
program comes to the same front."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
import scipy.optimize

from npuflow.base.errors import InputError
from npuflow.strategies import NARROW, OWN, STRATEGIES, WIDE, Budget, Goal, Levels, Noise, Output, Unit
from npuflow.strategies._front import Additive, _first_measured, pareto, spaced, within
from tests.tiers import often, spread

FEWER = OWN                               # 4 bits, where the recipe has 8
BITS = {FEWER: 4, NARROW: 8, WIDE: 16}
CANDIDATES = (FEWER, NARROW, WIDE)


@dataclass
class Layers:
    """Layers in a row: activation and weight of each are units, and a layer is as
    slow as its wider operand."""

    power: np.ndarray                     # [units]: noise over signal at 8 bits
    cycles_of: np.ndarray                 # [layers]: with 8 bits
    goal: Goal = field(default_factory=Goal)
    floats_last: bool = False
    budget: Budget = field(default_factory=lambda: Budget(20.0))
    asked: list[Levels] = field(default_factory=list)

    @property
    def units(self) -> Sequence[Unit]:
        count = len(self.cycles_of)
        noise = [self.noise(k, NARROW) for k in range(2 * count)]
        around = [(k + count) % (2 * count) for k in range(2 * count)]
        kinds = ["activation"] * count + ["weight"] * count
        places = [*range(count), *range(count)]
        rows = zip(kinds, noise, around, places, strict=True)
        return [
            Unit(f"u{k}", kind, one, (near,), False, CANDIDATES, place)  # type: ignore[arg-type]
            for k, (kind, one, near, place) in enumerate(rows)
        ]

    def noise(self, unit: int, level: int) -> Noise:
        return np.full((2, 1), self.power[unit] * 4.0 ** (8 - BITS[level]))

    def cycles(self, levels: Levels) -> float:
        bits = np.array([BITS[level] for level in levels]).reshape(2, -1)
        slow = np.where(bits.max(0) > 8, 2.0, np.where(bits.max(0) > 4, 1.0, 0.6))
        return float((self.cycles_of * slow).sum())

    def delta(self, levels: Levels, unit: int, level: int) -> float:
        return self.cycles((*levels[:unit], level, *levels[unit + 1 :])) - self.cycles(levels)

    def price(self, levels: Levels, what: str | None = None) -> float:
        chosen = what or self.goal.minimise
        if chosen == "cycles":
            return self.cycles(levels) / self.cycles((NARROW,) * len(levels))
        bits = np.mean([BITS[level] for level in levels[len(self.cycles_of) :]])
        return float(bits if chosen == "bits" else bits / 8)

    def level(self, levels: Levels) -> float:
        return float(-10 * np.log10(Additive(self).error(levels)))

    def measured(self, levels: Levels) -> Sequence[Output]:
        return [Output("y", self.level(levels), self.level(levels))]

    def promises(self, levels: Levels) -> bool:
        return self.budget.holds(self.measured(levels))

    def verified(self, levels: Levels) -> Sequence[Output]:
        self.asked.append(levels)
        return self.measured(levels)

    def holds(self, levels: Levels) -> bool:
        return self.budget.holds(self.verified(levels))

    def steady(self, levels: Levels) -> float:
        return self.level(levels)

    def floor(self) -> Noise:
        return np.full((2, 1), 1e-9)

    def wide_noise(self) -> Sequence[Noise]:
        return [self.noise(k, WIDE) for k in range(len(self.power))]


def made(seed: int, layers: int = 3, **more: object) -> Layers:
    rng = np.random.default_rng(seed)
    power = 10 ** rng.uniform(-6, -2.5, 2 * layers)
    return Layers(power, 10 ** rng.uniform(2, 4, layers), **more)  # type: ignore[arg-type]


def figures(problem: Layers, front: Sequence[Levels]) -> list[tuple[float, float]]:
    return [(problem.price(one), Additive(problem).error(one)) for one in front]


@pytest.mark.parametrize(("seed", "what"), often(product(range(5), ["cycles", "bytes"]), 5))
def test_the_integer_program_is_as_good_as_trying_all(seed: int, what: str) -> None:
    """For every bound of the noise it is within 2 % of the cheapest of all 729 mixtures."""
    problem = made(seed, goal=Goal(what))  # type: ignore[arg-type]
    exact = figures(problem, STRATEGIES["exhaustive"]().front(problem))
    found = figures(problem, STRATEGIES["ilp"](bounds=40).front(problem))
    assert set(found) <= {*exact} or all(
        min(p for p, e in exact if e <= error * (1 + 1e-9)) * 1.02 >= price for price, error in found
    )
    assert found[0] == exact[0] and found[-1][1] == exact[-1][1]


@pytest.mark.parametrize(("seed", "name"), spread(range(4), ["greedy", "ilp", "suffix", "qtable"]))
def test_no_search_beats_trying_all(seed: int, name: str) -> None:
    problem = made(seed)
    exact = figures(problem, STRATEGIES["exhaustive"]().front(problem))
    for price, error in figures(problem, STRATEGIES[name]().front(problem)):
        assert any(p <= price + 1e-9 and e <= error * (1 + 1e-9) for p, e in exact)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_the_integer_program_is_beaten_by_no_baseline(seed: int) -> None:
    problem = made(seed, layers=12)
    best = figures(problem, STRATEGIES["ilp"](bounds=60).front(problem))
    for name in ("greedy", "suffix", "qtable"):
        for price, error in figures(problem, STRATEGIES[name]().front(problem)):
            assert min(p for p, e in best if e <= error * 1.2) <= price * 1.005, name


@pytest.mark.parametrize("name", ["greedy", "ilp", "suffix", "qtable", "exhaustive"])
def test_the_cheapest_point_within_the_budget_is_taken(name: str) -> None:
    problem = made(3)
    levels = STRATEGIES[name]()(problem)
    assert problem.budget.holds(problem.verified(levels))
    front = STRATEGIES[name]().front(problem)
    cheaper = [one for one in front if problem.price(one) < problem.price(levels)]
    assert not any(problem.budget.holds(problem.measured(one)) for one in cheaper)


def test_where_no_point_holds_the_budget_the_most_accurate_is_taken() -> None:
    problem = made(3, budget=Budget(300.0))
    levels = STRATEGIES["greedy"]()(problem)
    assert problem.level(levels) == max(problem.level(one) for one in STRATEGIES["greedy"]().front(problem))


def test_limits_are_kept() -> None:
    problem = made(5, goal=Goal("cycles", {"bytes": 0.7}), budget=Budget(300.0))
    levels = STRATEGIES["ilp"]()(problem)
    assert problem.price(levels, "bytes") <= 0.7
    kept = [one for one in STRATEGIES["ilp"]().front(problem) if problem.price(one, "bytes") <= 0.7]
    assert problem.level(levels) == max(map(problem.level, kept))


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"bytes": 0.3}, "max_bytes"),
        ({"bits": 4.0, "cycles": 0.61, "bytes": 0.5}, None),
    ],
)
def test_a_limit_out_of_reach_is_an_error_that_names_it(
    limits: Mapping[str, float], text: str | None
) -> None:
    problem = made(5, goal=Goal("cycles", limits))
    if text is None:
        assert STRATEGIES["greedy"]()(problem) == Additive(problem).least
    else:
        with pytest.raises(InputError, match="max_bytes") as caught:
            STRATEGIES["greedy"]()(problem)
        assert "the least" in (caught.value.because or "") and caught.value.where.key == "precision.max_bytes"


def test_limits_that_exclude_each_other_are_an_error() -> None:
    problem = made(5)
    front = STRATEGIES["greedy"]().front(problem)
    cheap, dear = front[0], front[-1]
    problem.goal = Goal("cycles", {"cycles": problem.price(cheap), "bits": 4.0})
    assert within(problem, [cheap, dear]) == [cheap]
    with pytest.raises(InputError, match="max_cycles"):
        within(problem, [dear])


def test_too_many_mixtures_are_refused() -> None:
    with pytest.raises(InputError, match="too many to try all"):
        STRATEGIES["exhaustive"]().front(made(0, layers=10))


def test_a_front_has_no_point_that_another_beats() -> None:
    problem = made(1)
    front = STRATEGIES["exhaustive"]().front(problem)
    prices, errors = zip(*figures(problem, front), strict=True)
    assert list(prices) == sorted(prices) and list(errors) == sorted(errors, reverse=True)
    assert pareto(problem, reversed(front)) == list(front)
    some = spaced(front, prices, 4)
    assert some[0] == front[0] and some[-1] == front[-1] and len(some) <= 4


def test_a_cheap_mixture_that_turns_out_best_is_taken_where_none_holds_the_budget() -> None:
    """As with weights that were rounded for narrow layers above them: what is widened there is worse."""

    class Coupled(Layers):
        def verified(self, levels: Levels) -> Sequence[Output]:
            level = 16.0 if set(levels) == {FEWER} else 14.0
            return [Output("y", level, level)]

    one = made(2, layers=5)
    problem = Coupled(one.power, one.cycles_of, budget=Budget(200.0))
    assert set(STRATEGIES["greedy"]()(problem)) == {FEWER}


def test_what_the_solver_prints_on_its_own_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    solve, library = scipy.optimize.milp, ctypes.CDLL(None)

    def loud(*args: object, **more: object) -> object:
        library.printf(b"HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();\n")
        return solve(*args, **more)

    monkeypatch.setattr(scipy.optimize, "milp", loud)
    assert STRATEGIES["ilp"]().front(made(3))
    assert capfd.readouterr().out == ""


def test_few_points_of_a_long_front_are_measured() -> None:
    """Where the budget begins to hold is looked for by halves, and is the point that trying all finds."""
    problem = made(5, layers=40)
    front = STRATEGIES["greedy"]().front(problem)
    assert len(front) > 60
    counted = list[Levels]()

    class Counted(Layers):
        def measured(self, levels: Levels) -> Sequence[Output]:
            counted.append(levels)
            return super().measured(levels)

    for wanted in (problem.level(front[7]), problem.level(front[40]), problem.level(front[-2])):
        counted.clear()
        asked = Counted(problem.power, problem.cycles_of, budget=Budget(wanted))
        at = _first_measured(asked, front)
        assert asked.budget.holds(asked.measured(front[at])) and len(counted) <= 20
        assert not asked.budget.holds(asked.measured(front[at - 1]))
