"""Addresses by lifetimes, and the checker that does not trust them."""

import random
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.base.code import closure
from npuflow.base.errors import InternalError
from npuflow.schedule.allocate import Layout, Lifetime, check_layout, peak, place
from npuflow.schedule.arrange import METHODS, arrange, exact

LIVES = st.lists(
    st.tuples(st.integers(1, 900), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=40
)


@given(LIVES)
@settings(max_examples=150, deadline=None)
def test_no_two_live_values_share_a_byte(spec: list[tuple[int, int, int]]) -> None:
    lives = [Lifetime(f"v{i}", size, first, first + length) for i, (size, first, length) in enumerate(spec)]
    layout = place(lives, 16)
    check_layout(lives, layout.addresses, layout.total, 16)
    brute = max(sum(-(-v.size // 16) * 16 for v in lives if v.first <= t <= v.last) for t in range(50))
    assert layout.bound == brute <= layout.total
    for a in lives:
        for b in lives:
            if a is not b and a.first <= b.last and b.first <= a.last:
                x, y = layout.addresses[a.name], layout.addresses[b.name]
                assert x + a.size <= y or y + b.size <= x


@given(LIVES, st.randoms())
@settings(max_examples=100, deadline=None)
def test_the_checker_sees_every_overlap(spec: list[tuple[int, int, int]], rng) -> None:
    lives = [Lifetime(f"v{i}", size, first, first + length) for i, (size, first, length) in enumerate(spec)]
    addresses = {v.name: rng.randrange(0, 4096, 16) for v in lives}
    clash = any(
        a.meets(b)
        and addresses[a.name] < addresses[b.name] + b.size
        and addresses[b.name] < addresses[a.name] + a.size
        for i, a in enumerate(lives)
        for b in lives[:i]
    )
    if clash:
        with pytest.raises(InternalError, match="overlap"):
            check_layout(lives, addresses, 1 << 20, 16)
    else:
        check_layout(lives, addresses, 1 << 20, 16)


def test_the_bound_is_reached_by_a_chain() -> None:
    lives = [Lifetime(f"v{i}", 64, i, i + 1) for i in range(10)]
    assert place(lives, 64).total == peak(lives, 64) == 128


def fewest(lives: list[Lifetime], align: int) -> int:
    """The fewest bytes, by laying lives one on another in every order."""
    best = 1 << 30
    for order in permutations(lives):
        top: dict[str, int] = {}
        for v in order:
            under = [top[o.name] for o in order if o.name in top and o.meets(v)]
            top[v.name] = max(under, default=0) + -(-v.size // align) * align
        best = min(best, max(top.values()))
    return best


def test_exact_needs_no_more_than_any_order() -> None:
    """Every small set of lives: exact is what trying all orders finds, and says that it is
    proven; climbing lies between."""
    rng, better = random.Random(5), 0
    for _ in range(150):
        count = rng.randint(2, 6)
        lives = [
            Lifetime(f"v{i}", rng.randint(1, 90), t := rng.randint(0, 5), t + rng.randint(0, 3))
            for i in range(count)
        ]
        layouts = [arrange(lives, 4, m) for m in METHODS]
        for layout in layouts:
            check_layout(lives, layout.addresses, layout.total, 4)
        plain, climbed, exact = layouts
        assert exact.proven and exact.total == fewest(lives, 4)
        assert exact.bound <= exact.total <= climbed.total <= plain.total
        assert all(not x.proven or x.total == exact.total for x in layouts)
        better += exact.total < plain.total
    assert better >= 2


def test_the_solver_finds_the_fewest_bytes_and_proves_them() -> None:
    """It starts from the worst layout, so that what it returns is its own; the same each time."""
    rng = random.Random(8)
    for _ in range(12):
        lives = [
            Lifetime(f"v{i}", rng.randint(1, 90), t := rng.randint(0, 4), t + rng.randint(0, 3))
            for i in range(6)
        ]
        stacked, top = {}, 0
        for v in lives:
            stacked[v.name], top = top, top + -(-v.size // 4) * 4
        found = exact(lives, 4, Layout(stacked, top, peak(lives, 4)))
        check_layout(lives, found.addresses, found.total, 4)
        assert found.proven and found.total == fewest(lives, 4)
        assert found == exact(lives, 4, Layout(stacked, top, peak(lives, 4)))


def test_too_many_pairs_are_left_to_climbing() -> None:
    lives = [Lifetime(f"v{i}", 3, 0, 9) for i in range(40)] + [Lifetime("w", 5, 10, 12)]
    start = Layout({v.name: 4 * i for i, v in enumerate(lives)}, 999, peak(lives, 4))
    assert exact(lives, 4, start) is start


def test_the_solver_is_in_the_keys_of_what_uses_it() -> None:
    assert "scipy" in closure(arrange).libraries and "scipy" not in closure(place).libraries


def test_larger_sets_end_within_bounds() -> None:
    rng, gained = random.Random(6), 0
    for _ in range(6):
        lives = [
            Lifetime(f"v{i}", rng.randint(1, 999), t := rng.randint(0, 20), t + rng.randint(0, 8))
            for i in range(40)
        ]
        plain, climbed, exact = (arrange(lives, 16, m) for m in METHODS)
        for layout in (climbed, exact):
            check_layout(lives, layout.addresses, layout.total, 16)
        assert exact.total <= climbed.total <= plain.total
        gained += climbed.total < plain.total
    assert gained >= 3
