"""Samples that fit, choose and verify: disjoint, all of them, by what they hold and not by their order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuflow.base.digest import digest
from npuflow.input.data.splits import CHOOSE, VERIFIED_FROM, VERIFY, divided

CONTENTS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 60).map(digest))


@given(CONTENTS, st.randoms())
def test_parts_are_disjoint_and_complete_in_any_order(contents: dict[str, str], rnd: random.Random) -> None:
    found = divided(contents)
    assert sorted([*found.fit, *found.choose, *found.verify]) == sorted(contents)
    shuffled = list(contents.items())
    rnd.shuffle(shuffled)
    assert divided(dict(shuffled)) == found


@given(CONTENTS)
def test_equal_samples_stay_together(contents: dict[str, str]) -> None:
    parts = [{contents[name] for name in part} for part in divided(contents)]
    assert sum(map(len, parts)) == len(set().union(*parts))


def unlike(count: int) -> dict[str, str]:
    return {f"{i}.png": digest(["picture", i]) for i in range(count)}


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (0, (0, 0, 0)),
        (1, (1, 0, 0)),
        (2, (1, 1, 0)),
        (VERIFIED_FROM - 1, (4, 1, 0)),
        (VERIFIED_FROM, (4, 1, 1)),
        (24, (14, 6, 4)),
        (128, (71, 32, 25)),
        (1000, (1000 - CHOOSE - VERIFY, CHOOSE, VERIFY)),
    ],
)
def test_how_many_are_in_each_part(count: int, sizes: tuple[int, int, int]) -> None:
    assert tuple(map(len, divided(unlike(count)))) == sizes


def test_one_sample_many_times_only_fits() -> None:
    assert tuple(map(len, divided(dict.fromkeys(unlike(50), digest(0))))) == (50, 0, 0)


@pytest.mark.parametrize("count", range(10, 80, 7))
def test_a_further_sample_moves_at_most_one_other_into_each_part(count: int) -> None:
    before, after = divided(unlike(count)), divided(unlike(count + 1))
    for mine, now in zip(before, after, strict=True):
        assert len({*now} - {*mine}) <= 2 and len({*mine} - {*now}) <= 1
