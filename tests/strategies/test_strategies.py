"""Searches for widths on made-up problems: they stop where the budget holds, or
where cycles buy too few dB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from npuflow.strategies import FLOAT, NARROW, OWN, STRATEGIES, WIDE, Budget, Goal, Levels, Noise, Output, Unit

BASE = 1000.0


@dataclass
class Made:
    """Units whose noise adds up, and whose cycles do. `power`: noise over signal of each unit at the
    recipe's width; `price`: share of the cycles that widening it costs; `less`: dB that widest
    integers take off; float takes all."""

    power: Sequence[float]
    price: Sequence[float]
    budget: Budget = field(default_factory=Budget)
    less: float = 48.0
    sensitive: frozenset[int] = frozenset()
    host: float = 5.0                     # cycles of a unit in float, as a multiple of the whole network
    stuck: float = 0.0                    # noise over signal that no width changes
    bias: float = 0.0                     # dB that the quantised network is worse than fake quantisation says
    asked: list[Levels] = field(default_factory=list)

    @property
    def units(self) -> tuple[Unit, ...]:
        rows = enumerate(self.power)
        return tuple(Unit(f"u{k}", "activation", self._noise(p), (), k in self.sensitive) for k, p in rows)

    def cycles(self, levels: Levels) -> float:
        extra = {NARROW: 0.0, WIDE: 1.0, FLOAT: self.host}
        return BASE * (1 + sum(p * extra[level] for p, level in zip(self.price, levels, strict=True)))

    def delta(self, levels: Levels, unit: int, level: int) -> float:
        return self.cycles((*levels[:unit], level, *levels[unit + 1 :])) - self.cycles(levels)

    def measured(self, levels: Levels) -> Sequence[Output]:
        return [Output("y", self.level(levels), self.level(levels))]

    def promises(self, levels: Levels) -> bool:
        return self.budget.holds(self.measured(levels))

    def steady(self, levels: Levels) -> float:
        return self.level(levels)

    def verified(self, levels: Levels) -> Sequence[Output]:
        self.asked.append(levels)
        return [Output("y", self.level(levels) - self.bias, self.level(levels) - self.bias)]

    def holds(self, levels: Levels) -> bool:
        return self.budget.holds(self.verified(levels))

    def floor(self) -> Noise:
        return self._noise(self.stuck) + np.sum(list(self.wide_noise()), axis=0)

    def wide_noise(self) -> Sequence[Noise]:
        return [self._noise(p * 10 ** (-self.less / 10)) for p in self.power]

    def level(self, levels: Levels) -> float:
        """dB of the output."""
        share = {NARROW: 1.0, WIDE: 10 ** (-self.less / 10), FLOAT: 0.0}
        noise = sum(p * share[level] for p, level in zip(self.power, levels, strict=True))
        return float(-10 * np.log10(max(noise + self.stuck, 1e-20)))

    floats_last = False

    @property
    def goal(self) -> Goal:
        return Goal()

    def price(self, levels: Levels, what: str | None = None) -> float:
        return self.cycles(levels) / BASE

    def noise(self, unit: int, level: int) -> Noise:
        share = {NARROW: 1.0, WIDE: 10 ** (-self.less / 10), FLOAT: 0.0}
        return self._noise(self.power[unit] * share[level])

    @staticmethod
    def _noise(power: float) -> Noise:
        return np.full((2, 1), power)


def auto(problem: Made, **options: float) -> Levels:
    return STRATEGIES["auto"](**options)(problem)


def even(count: int, db: float, price: float, **more: object) -> Made:
    """So many equal units that together make an output of so many dB."""
    return Made([10 ** (-db / 10) / count] * count, [price] * count, **more)  # type: ignore[arg-type]


def test_none_changes_nothing_and_asks_nothing() -> None:
    problem = even(5, 3.0, 0.1)
    assert STRATEGIES["none"]()(problem) == (NARROW,) * 5 and problem.asked == []


@pytest.mark.parametrize("problem", [even(5, 25.0, 0.1), Made((), ())])
def test_nothing_is_widened_where_the_budget_holds(problem: Made) -> None:
    assert auto(problem) == (NARROW,) * len(problem.units)


def test_answers_that_agree_are_enough() -> None:
    @dataclass
    class Agreeing(Made):
        def verified(self, levels: Levels) -> Sequence[Output]:
            return [Output("y", 5.0, 2.0, 0.995)]

    assert auto(Agreeing([0.3] * 4, [0.1] * 4)) == (NARROW,) * 4


def test_one_loud_unit_is_widened_alone() -> None:
    power, price = [1e-4] * 10, [0.05] * 10
    power[6] = 0.5
    levels = auto(Made(power, price))
    assert levels[6] == WIDE and sum(level != NARROW for level in levels) == 1


def test_of_equally_loud_units_the_cheap_ones_are_widened() -> None:
    # 18 dB; any three are enough
    problem = Made([0.002] * 8, [0.2, 0.001, 0.2, 0.001, 0.2, 0.001, 0.2, 0.001])
    levels = auto(problem)
    assert all(levels[k] == NARROW for k in (0, 2, 4, 6))
    assert problem.budget.holds(problem.verified(levels)) and problem.cycles(levels) <= 1.005 * BASE


def test_widths_go_to_the_outputs_that_miss() -> None:
    """Two outputs: the first holds the budget with a unit that is loud for it, the second misses by
    others."""

    @dataclass
    class Two(Made):
        @property
        def units(self) -> tuple[Unit, ...]:
            noise = [(p if k == 0 else 0.0, 0.0 if k == 0 else p) for k, p in enumerate(self.power)]
            return tuple(
                Unit(f"u{k}", "activation", np.tile(n, (2, 1)), (), False) for k, n in enumerate(noise)
            )

        def floor(self) -> Noise:
            return np.zeros((2, 2))

        def outputs(self, levels: Levels) -> Sequence[Output]:
            units = list(zip(self.power, levels, strict=True))
            loud = (sum(p for p, level in some if level == NARROW) for some in (units[:1], units[1:]))
            both = [-10 * np.log10(max(noise, 1e-20)) for noise in loud]
            return [Output(name, db, db) for name, db in zip("ab", both, strict=True)]

        verified = measured = outputs

        def steady(self, levels: Levels) -> float:
            return min(one.sqnr for one in self.outputs(levels))

    problem = Two([0.009, 0.006, 0.006, 0.006], [0.001, 0.05, 0.05, 0.05])
    assert [problem.budget.met(one) for one in problem.verified((NARROW,) * 4)] == [True, False]
    levels = auto(problem)
    assert levels[0] == NARROW and problem.budget.holds(problem.verified(levels))


def test_it_stops_at_the_budget() -> None:
    """No more is widened than a rung of the ladder needs: one unit less, or a few, would not hold."""
    problem = even(50, 14.0, 0.002)
    levels = auto(problem)
    wide = sum(level == WIDE for level in levels)
    assert problem.budget.holds(problem.verified(levels)) and FLOAT not in levels
    least = next(n for n in range(51) if problem.level((WIDE,) * n + (NARROW,) * (50 - n)) >= 20.0)
    assert problem.cycles((WIDE,) * least + (NARROW,) * (50 - least)) <= problem.cycles(levels)
    assert problem.cycles(levels) / BASE <= 1.04 * (1 + 0.002 * least) and wide < 50


def test_the_quantised_network_has_the_last_word() -> None:
    """Fake quantisation is 4 dB too good: the search goes on until the judge agrees."""
    problem = even(40, 15.0, 0.001, bias=4.0)
    assert problem.budget.holds(problem.verified(auto(problem)))
    rosy = even(40, 15.0, 0.001, bias=-3.0)
    levels = auto(rosy)
    plain = even(40, 15.0, 0.001)
    assert rosy.budget.holds(rosy.verified(levels)) and rosy.cycles(levels) <= plain.cycles(auto(plain))


def test_it_stops_where_a_step_gains_less_than_a_decibel_for_five_per_cent_of_the_cycles() -> None:
    """Ten cheap units gain 6 dB; the rest, each 20 % of the cycles for a fraction of a decibel, are left."""
    cheap, dear = [0.075] * 10, [0.025] * 10
    problem = Made([*cheap, *dear], [0.001] * 10 + [0.2] * 10, less=60.0)
    assert not problem.budget.holds(problem.verified((NARROW,) * 20))
    levels = auto(problem)
    assert levels[:10] == (WIDE,) * 10 and WIDE not in levels[10:]
    assert not problem.budget.holds(problem.verified(levels))
    # With a patience of a decibel for the whole network's cycles it goes the whole way.
    patient = auto(problem, for_cycles=1.0)
    assert problem.budget.holds(problem.verified(patient))


def test_what_is_out_of_reach_and_gains_nothing_is_left_alone() -> None:
    """Noise that no width takes off: all units wide gain a third of a decibel for half of the cycles."""
    problem = even(10, 15.0, 0.05, stuck=0.4)
    assert auto(problem) == (NARROW,) * 10


@pytest.mark.parametrize("sensitive", [frozenset(), frozenset({1, 3})], ids=["", "sensitive operators"])
def test_a_mixture_is_never_worse_than_the_recipes_widths(sensitive: frozenset[int]) -> None:
    """Wide codes that the judge finds worse (a range that does not fit): the recipe's widths stay."""

    @dataclass
    class Worse(Made):
        def verified(self, levels: Levels) -> Sequence[Output]:
            found = 10.0 - sum(level != NARROW for level in levels)
            return [Output("y", found, found)]

    problem = Worse([0.02] * 6, [0.001] * 6, sensitive=sensitive)
    levels = auto(problem)
    assert problem.verified(levels)[0].sqnr >= problem.verified((NARROW,) * 6)[0].sqnr


@pytest.mark.parametrize("seed", range(12))
def test_random_problems_end_no_worse_and_no_dearer_than_they_must(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40))
    power = 10 ** rng.uniform(-5, -0.5, count)
    power *= 10 ** (-rng.uniform(3, 19) / 10) / power.sum()
    price = 10 ** rng.uniform(-5, -1, count)
    problem = Made(power.tolist(), price.tolist(), bias=float(rng.uniform(-1, 1)))
    levels, narrow, wide = auto(problem), (NARROW,) * count, (WIDE,) * count
    assert problem.verified(levels)[0].sqnr >= problem.verified(narrow)[0].sqnr
    assert problem.cycles(levels) <= problem.cycles(wide) * 1.0001 and auto(problem) == levels
    if not problem.budget.holds(problem.verified(levels)):
        # What it leaves narrow is not worth its cycles: of all single steps none
        # gains a decibel for 5 % of them.
        for k in range(count):
            if levels[k] == NARROW:
                more = (*levels[:k], WIDE, *levels[k + 1 :])
                gain = problem.level(more) - problem.level(levels)
                share = (problem.cycles(more) - problem.cycles(levels)) / problem.cycles(narrow)
                assert gain <= max(1.5, 40 * share), k


def test_sensitive_operators_come_first() -> None:
    """Roots and quotients, where widening them is enough: nothing else is looked for."""
    problem = Made([0.004, 0.05, 0.003, 0.05], [0.05, 0.05, 0.05, 0.05], sensitive=frozenset({1, 3}))
    assert auto(problem) == (NARROW, WIDE, NARROW, WIDE)


@dataclass
class Stubborn(Made):
    """One tensor spans too much for 16 bits."""

    def level(self, levels: Levels) -> float:
        stuck = 0.0 if levels[2] == FLOAT else 0.4
        rest = sum(p for p, level in zip(self.power, levels, strict=True) if level == NARROW)
        return float(-10 * np.log10(stuck + rest + 1e-6))

    def wide_noise(self) -> Sequence[Noise]:
        return [self._noise(0.4 if k == 2 else 1e-7) for k in range(len(self.power))]


def test_where_the_widest_integers_fail_the_layer_is_left_in_float() -> None:
    """Float on the host for it alone, although it is dear."""
    problem = Stubborn([1e-4, 1e-4, 0.4, 1e-4], [0.01] * 4)
    levels = auto(problem)
    assert levels[2] == FLOAT and levels.count(FLOAT) == 1
    assert problem.budget.holds(problem.verified(levels))


@dataclass
class WithFloats(Stubborn):
    """Every tensor may be in a float type of the NPU, at ten times what wide integers cost."""

    @property
    def units(self) -> tuple[Unit, ...]:
        return tuple(replace(unit, floats=(OWN,)) for unit in super().units)

    def cycles(self, levels: Levels) -> float:
        extra = {NARROW: 0.0, WIDE: 1.0, FLOAT: self.host, OWN: 10.0}
        return BASE * (1 + sum(p * extra[level] for p, level in zip(self.price, levels, strict=True)))

    def level(self, levels: Levels) -> float:
        return super().level(tuple(FLOAT if level == OWN else level for level in levels))

    def floor(self, levels: Levels | None = None) -> Noise:
        return self._noise(1e-6)


@pytest.mark.parametrize("last", [False, True])
def test_a_float_type_stands_beside_wide_integers_where_these_alone_fail(last: bool) -> None:
    """For the tensor that spans too much, and for no other: wide integers do for the loud one."""
    problem = WithFloats([0.2, 1e-4, 0.4, 0.2], [0.02] * 4, host=1000.0)
    problem.floats_last = last
    assert auto(problem) == (WIDE, NARROW, OWN, WIDE)


def test_no_layer_is_left_in_float_where_the_host_is_far_too_slow() -> None:
    problem = Stubborn([1e-4, 1e-4, 0.4, 1e-4], [0.01] * 4, host=5000.0)
    assert FLOAT not in auto(problem)


def test_float_on_the_host_ends_where_it_gets_far_too_slow() -> None:
    """The loud tensor is left in float, though all that the budget asks for would be too slow: 16.9 dB are
    better than 4.9."""

    @dataclass
    class Two(Stubborn):
        def level(self, levels: Levels) -> float:
            stuck = sum(0.0 if levels[k] == FLOAT else p for k, p in ((1, 0.02), (2, 0.3)))
            return float(-10 * np.log10(stuck + 1e-6))

        def wide_noise(self) -> Sequence[Noise]:
            return [self._noise(p) for p in (1e-7, 0.02, 0.3, 1e-7)]

    problem = Two([1e-4, 0.02, 0.3, 1e-4], [0.01, 0.6, 0.01, 0.01])
    levels = auto(problem)
    assert levels[2] == FLOAT and levels[1] != FLOAT


def test_what_is_dear_and_hardly_needed_is_narrowed_again() -> None:
    """The first unit gains most per cycle; once the second is wide, as it has to be,
    the first is not needed."""
    problem = Made([0.0095, 0.2], [0.05, 3.5])
    assert auto(problem, for_cycles=1.0) == (NARROW, WIDE)
