"""Energy of mixtures of widths: narrow is cheaper, by what the table says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npuflow.hw.energy import Energy, MacEnergy
from npuflow.strategies import NARROW, WIDE, Budget, Goal
from npuflow.tune.precision.energy_cost import EnergyModel
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.problem import SearchProblem, cost_of
from tests.precision.harnesses import BOTH, harness_of, mixed_net
from tests.precision.test_float_levels import TARGET

PRODUCTS = Energy("", (MacEnergy(8, 8, 1.0), MacEnergy(16, 16, 4.0)))
TRAFFIC = replace(PRODUCTS, macs=(MacEnergy(16, 16, 0.0),), external_byte=1.0)


@pytest.fixture(scope="module")
def harness() -> Harness:
    return harness_of(mixed_net(), numerics=BOTH)


@pytest.fixture(scope="module")
def models(harness: Harness) -> tuple[EnergyModel, EnergyModel]:
    cost = cost_of(harness, replace(TARGET, numerics=harness.network.numerics))
    return EnergyModel(cost, PRODUCTS), EnergyModel(cost, TRAFFIC)


def test_products_cost_what_their_widths_say(models: tuple[EnergyModel, EnergyModel]) -> None:
    model = models[0]
    narrow, wide = ((level,) * len(model.cost.at) for level in (NARROW, WIDE))
    assert model.picojoules(narrow) == sum(model.macs) > 0
    assert model.picojoules(wide) == 4 * sum(model.macs)
    assert model.relative(narrow) == 1.0 and model.relative(wide) == 4.0


def test_traffic_costs_its_bytes(models: tuple[EnergyModel, EnergyModel]) -> None:
    model = models[1]
    narrow, wide = ((level,) * len(model.cost.at) for level in (NARROW, WIDE))
    assert model.picojoules(narrow) == model.cost.moved(narrow) > 0
    assert model.picojoules(wide) == pytest.approx(2 * model.picojoules(narrow))


def test_one_wide_unit_costs_between(models: tuple[EnergyModel, EnergyModel]) -> None:
    for model in models:
        count = len(model.cost.at)
        for unit in range(count):
            levels = tuple(WIDE if k == unit else NARROW for k in range(count))
            assert 1.0 <= model.relative(levels) < model.relative((WIDE,) * count)


def test_a_search_for_the_least_energy_pays_with_energy(
    harness: Harness, models: tuple[EnergyModel, EnergyModel]
) -> None:
    model = models[0]
    wide = (WIDE,) * len(model.cost.at)
    prices = [
        SearchProblem(
            harness, model.cost, Budget(), list, 2, False, print, goal=Goal(what), energy=model
        ).price(wide)
        for what in ("energy", "cycles")
    ]
    assert prices[0] == 4.0 and prices[1] != 4.0
