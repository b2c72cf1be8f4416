"""Constants in local memory: each begins as early as its bytes are free, and none meets another."""

from __future__ import annotations

import random

from npuflow.schedule.allocate import Lifetime, aligned, check_layout
from npuflow.schedule.local import go_round

ALIGN = 16


def drawn(rng: random.Random, steps: int) -> tuple[list[Lifetime], dict[str, int]]:
    lives, movable = [], {}
    for t in range(steps):
        for k in range(rng.randint(0, 2)):
            lives.append(Lifetime(f"v{t}.{k}", rng.randint(1, 200), t, min(steps - 1, t + rng.randint(0, 2))))
        for k in range(rng.randint(0, 3)):
            lives.append(Lifetime(f"c{t}.{k}", rng.randint(1, 300), t, t))
            movable[f"c{t}.{k}"] = 0 if t < steps // 2 else steps // 2
    return lives, movable


def test_drawn_at_random_no_two_share_a_byte() -> None:
    """The checker of its own agrees; fixed lives keep theirs, constants only grow to the
    front, not beyond their segment."""
    rng, early = random.Random(2), 0
    for _ in range(200):
        lives, movable = drawn(rng, rng.randint(1, 12))
        found = go_round(lives, movable, limit := rng.choice((1500, 4000)), ALIGN)
        if found is None:
            continue
        chosen, layout = found
        check_layout(chosen, layout.addresses, limit, ALIGN)
        assert layout.total <= limit and layout.bound <= layout.total
        for before, after in zip(lives, chosen, strict=True):
            assert (before.name, before.size, before.last) == (after.name, after.size, after.last)
            assert after.first == before.first or (
                before.name in movable and movable[after.name] <= after.first < before.first
            )
            early += before.first - after.first
    assert early > 500


def test_with_room_everything_is_there_from_the_start() -> None:
    lives = [Lifetime(f"c{t}", 100, t, t) for t in range(9)]
    chosen, _ = go_round(lives, {v.name: 0 for v in lives}, 9 * aligned(100, ALIGN), ALIGN) or ([], None)
    assert [v.first for v in chosen] == [0] * 9


def test_over_time_constants_go_round() -> None:
    """With room for three, each takes the place of the third before it, as soon as that is done."""
    lives = [Lifetime(f"c{t}", 100, t, t) for t in range(9)]
    chosen, layout = go_round(lives, {v.name: 0 for v in lives}, 3 * aligned(100, ALIGN), ALIGN) or ([], None)
    assert [v.first for v in chosen] == [0, 0, 0, 1, 2, 3, 4, 5, 6]
    assert layout is not None and layout.total == 3 * layout.bound == 3 * aligned(100, ALIGN)


def test_what_does_not_fit_is_none() -> None:
    assert go_round([Lifetime("c", 100, 0, 0), Lifetime("v", 100, 0, 0)], {"c": 0}, 150, ALIGN) is None
