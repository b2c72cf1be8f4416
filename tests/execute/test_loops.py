"""Random loops against the same written out: sessions, the interpreter and the executor, value by value."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.networks.random_loops import differences
from tests.tiers import often

EACH = 250                                # seeds of a part of the campaign


@pytest.mark.parametrize(
    ("seeds", "least"), often([(range(12), 4), (range(12, 50), 16), (range(50, 100), 20)], 3)
)
def test_a_hundred_loops(seeds: range, least: int) -> None:
    found = {seed: differences(seed) for seed in seeds}
    assert not {seed: wrong for seed, (wrong, _) in found.items() if wrong}
    assert sum(whole for _, whole in found.values()) > least, "too few loops became integers"


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(100_000, 10_000_000))
def test_any_loop(seed: int) -> None:
    assert not differences(seed)[0]


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(16))
def test_thousands_of_loops(part: int) -> None:
    first = 100 + part * EACH
    assert not {s: wrong for s in range(first, first + EACH) if (wrong := differences(s)[0])}
