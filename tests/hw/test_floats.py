"""Floats as patterns of bits: every pattern, every rounding, and exact sums of products."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from npuflow.hw.elements import ELEMENTS
from npuflow.hw.floats import clamped, decoded, encoded, infinity, nan, nearest, products, rounded, sums

TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
EVERY = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize("name", TYPES)
def test_every_pattern_stands_for_what_it_is_published_to(name: str) -> None:
    with np.errstate(invalid="ignore"):  # signalling NaNs
        want = EVERY.view(TYPES[name]).astype(np.float64)
    found = decoded(EVERY, name)
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(want))


@pytest.mark.parametrize("name", TYPES)
def test_every_number_is_encoded_as_itself_and_every_nan_as_one(name: str) -> None:
    found, isnan = encoded(decoded(EVERY, name), name), np.isnan(decoded(EVERY, name))
    np.testing.assert_array_equal(found[~isnan], EVERY[~isnan])
    assert set(found[isnan].tolist()) == {nan(name)}
    assert np.isnan(np.array([nan(name)], np.uint16).view(TYPES[name])[0])


@pytest.mark.parametrize("name", TYPES)
def test_rounding_is_to_the_nearest_even_on_both_sides_of_every_midpoint(name: str) -> None:
    """All places between two neighbours, the border of infinity and the subnormal numbers among them."""
    top = infinity(name)
    low = decoded(np.arange(top), name)
    step = np.append(np.diff(low), low[-1] - low[-2])
    middle = low + step / 2  # exact: one bit more than the type has
    below = np.arange(top, dtype=np.uint16)
    even = below + (below & 1)
    for real, want in (
        (middle, even),
        (np.nextafter(middle, 0), below),
        (np.nextafter(middle, np.inf), below + 1),
    ):
        np.testing.assert_array_equal(encoded(real, name), want)
        np.testing.assert_array_equal(encoded(-real, name), want | 0x8000)
    numbers = np.random.default_rng(0).normal(size=5000).astype(np.float32) * np.float32(2.0**-10)
    np.testing.assert_array_equal(encoded(numbers, name), numbers.astype(TYPES[name]).view(np.uint16))
    assert encoded(np.inf, name) == top and encoded(-np.inf, name) == top | 0x8000
    assert encoded(-0.0, name) == 0x8000 and encoded(1e308, name) == top and encoded(5e-324, name) == 0


def test_clamps_compare_numbers_and_leave_nan_alone() -> None:
    x = encoded([-np.inf, -1.0, -0.0, 0.5, 9.0, np.inf, np.nan], "bfloat16")
    found = decoded(clamped(x, encoded(0.0, "bfloat16"), encoded(6.0, "bfloat16"), "bfloat16"), "bfloat16")
    np.testing.assert_array_equal(found, [0.0, 0.0, 0.0, 0.5, 6.0, 6.0, np.nan])
    assert np.signbit(found[2]) and not np.signbit(found[0])


def _by_hand(
    weight: npt.NDArray[np.float64], x: npt.NDArray[np.float64], chunk: int, start: float
) -> np.float32:
    total = np.float32(start)
    for k in range(0, len(x), chunk):
        terms = zip(weight[k : k + chunk].tolist(), x[k : k + chunk].tolist(), strict=True)
        total = np.float32(total + nearest(sum((Fraction(a) * Fraction(b) for a, b in terms), Fraction(0))))
    return total


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("spread", [0.1, 3.0, 8.0])
def test_sums_of_a_chunk_are_rounded_once(name: str, spread: float) -> None:
    """Terms of similar and of very different sizes, with cancellation, and grids on which ties are common."""
    rng = np.random.default_rng(int(spread * 10))
    sizes = (
        np.exp(rng.normal(0, spread, shape)) * rng.choice([-1, 1], shape) for shape in ((4, 37), (37, 6))
    )
    weight, x = (rounded(np.clip(v, -200, 200), name) for v in sizes)
    weight[1, 1::2], x[1::2] = weight[1, ::2][:18], -x[::2][:18]  # nearly everything cancels
    start = np.float32(rng.normal(size=(4, 1)))
    found = products(weight, x, 8, start)
    for i in range(4):
        for j in range(6):
            assert found[i, j] == _by_hand(weight[i], x[:, j], 8, start[i, 0]), (i, j)


def test_a_tie_of_the_exact_sum_goes_to_the_even_number() -> None:
    """2^24 + 1 lies between two float32: float64 knows it exactly, a product more decides."""
    big, one = 2.0**24, np.ones((1, 3))
    for last, want in ((0.0, big), (2.0**-60, big + 2), (-(2.0**-60), big)):
        column = np.array([[big], [1.0], [last]])
        assert products(one, column, 64)[0, 0] == want
        assert sums(column[:, 0], 64) == want
    assert products(one, np.array([[big], [1.0], [1.0]]), 2)[0, 0] == big  # 1 is lost in its chunk
    assert products(one, np.array([[big], [1.0], [1.0]]), 3)[0, 0] == big + 2


def test_infinities_and_overflow_of_sums() -> None:
    one = np.ones((1, 2))
    assert products(one, np.array([[2.0**127], [2.0**127]]), 2)[0, 0] == np.inf
    assert products(one, np.array([[np.inf], [1.0]]), 2)[0, 0] == np.inf
    assert np.isnan(products(one, np.array([[np.inf], [-np.inf]]), 2)[0, 0])
    zero = products(one, np.array([[-0.0], [-0.0]]), 2)[0, 0]
    assert zero == 0 and not np.signbit(zero)


def test_fractions_round_to_every_kind_of_float32() -> None:
    rng = np.random.default_rng(1)
    for real in (
        *rng.normal(size=50),
        *np.exp(rng.uniform(-103, 88, 50)),
        2.0**-149,
        2.0**-150,
        3 * 2.0**-150,
        2.0**128 - 2.0**103,
        2.0**128 - 2.0**103 - 2.0**70,
    ):
        with np.errstate(over="ignore"):
            assert nearest(Fraction(float(real))) == np.float32(real), real


def test_rows_of_floats() -> None:
    assert [(ELEMENTS[n].fraction, ELEMENTS[n].numpy) for n in ("float16", "bfloat16", "float32")] == [
        (10, "uint16"),
        (7, "uint16"),
        (23, "float32"),
    ]
