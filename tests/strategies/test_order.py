"""Units in the order of dB for their cycles: as by a search that prices every unit anew at every step."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.strategies import NARROW, WIDE, Levels, Noise, Unit
from npuflow.strategies._order import by_gain


class Chain:
    """Units whose cost depends on the units beside them: of two that are both wide one is free."""

    def __init__(self, power: list[float], price: list[float]) -> None:
        count = len(power)
        self.noise = {k: np.full((1, 1), p) for k, p in enumerate(power)}
        self.price = price
        near = [tuple(j for j in (k - 1, k + 1) if 0 <= j < count) for k in range(count)]
        self.units = [Unit(f"u{k}", "activation", self.noise[k], near[k]) for k in range(count)]
        self.asked = 0

    def cycles(self, levels: Levels) -> float:
        pairs = zip((NARROW, *levels), levels, self.price, strict=False)
        return sum(p for before, level, p in pairs if level == WIDE != before)

    def delta(self, levels: Levels, unit: int, level: int) -> float:
        self.asked += 1
        return self.cycles((*levels[:unit], level, *levels[unit + 1 :])) - self.cycles(levels)


def gains(total: Noise, parts: Noise) -> Noise:
    return 10 * np.log10((total + 1e-7) / (np.maximum(total - parts, 0.0) + 1e-7)).mean((1, 2))


def every_price_anew(made: Chain) -> list[int]:
    levels, left = [NARROW] * len(made.units), list(made.noise)
    total, found = np.sum(list(made.noise.values()), axis=0), []
    while left:
        worth = [
            float(gains(total, made.noise[k][None])[0]) / max(made.delta(tuple(levels), k, WIDE), 0.1)
            for k in left
        ]
        k = left.pop(int(np.argmax(worth)))
        total, levels[k] = np.maximum(total - made.noise[k], 0.0), WIDE
        found.append(k)
    return found


rows = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(rows)
def test_the_order_is_that_of_prices_made_anew_at_every_step(some: list[tuple[int, int]]) -> None:
    made = Chain([p / 1000 for p, _ in some], [float(c) for _, c in some])
    total = np.sum(list(made.noise.values()), axis=0)
    count = len(some)
    found = by_gain(made, (NARROW,) * count, (WIDE,) * count, made.noise, total, gains, 0.1)
    assert [k for k, _ in found] == every_price_anew(made)


def test_only_neighbours_are_priced_again() -> None:
    count = 500
    made = Chain([1e-3 * (1 + k % 7) for k in range(count)], [1.0] * count)
    total = np.sum(list(made.noise.values()), axis=0)
    by_gain(made, (NARROW,) * count, (WIDE,) * count, made.noise, total, gains, 0.1)
    assert made.asked <= 3 * count
