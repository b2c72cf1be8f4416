"""Seeds that hypothesis draws for a check, as many as a tier has."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st


def for_seeds(examples: int, check: Callable[[int], None]) -> None:
    """Run the check on so many seeds; one that fails is made smaller and reported by its number."""
    @settings(max_examples=examples, deadline=None)
    @given(seed=st.integers(0, 2**32 - 1))
    def drawn(seed: int) -> None:
        check(seed)

    drawn()
