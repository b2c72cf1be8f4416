"""How many steps there are behind strides, and which of several numbers a layer has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from npuflow.base.step_count import EACH, StepCount
from npuflow.ir.lengths import Length

COUNTS = st.builds(StepCount, st.integers(1, 8), st.integers(-20, 20))


@given(COUNTS, st.integers(1, 6), st.integers(-9, 9), st.integers(1, 400))
def test_steps_behind_a_further_layer(one: StepCount, stride: int, more: int, steps: int) -> None:
    assert one.behind(stride, more).of(steps) == (one.of(steps) + more) // stride


@given(COUNTS, st.integers(0, 9), st.integers(1, 12), st.integers(1, 400))
def test_chunks_of_the_length_reach_as_far_as_is_read(
    one: StepCount, beyond: int, rows: int, steps: int
) -> None:
    """As many chunks of `stride * rows` steps as there are of `rows` of its own."""
    wanted = -(-(one.of(steps) + beyond) // rows)
    assert -(-(steps + one.reached(beyond)) // (one.stride * rows)) == wanted


@given(st.lists(COUNTS, min_size=1, max_size=4), st.integers(30, 60))
def test_of_several_numbers_of_steps_one_that_is_never_less(counts: list[StepCount], most: int) -> None:
    length = Length(f"T<={most}", 20, most, inner=tuple(counts))
    for one in counts:
        found = length.steps_like(one.of(most))
        assert found is not None and all(found.of(n) >= one.of(n) for n in range(20, most + 1))


def test_steps_of_another_number_are_none() -> None:
    length = Length("T<=64", 1, 64, inner=(StepCount(2, 1),))
    assert length.steps_like(64) == EACH and length.steps_like(32) == StepCount(2, 1)
    assert length.steps_like(31) is None
