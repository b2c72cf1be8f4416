"""hw.numerics against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuflow.base.errors import TargetError
from npuflow.hw.numerics import (
    along,
    dequantize,
    divide_round,
    multiplier_shift,
    quantize,
    requantize,
    scaled,
    shift_round,
)
from npuflow.hw.target import Numerics, Rounding

MODES = get_args(Rounding)
modes = st.sampled_from(MODES)
codes = st.integers(-(2**40), 2**40)


def rounded(value: Fraction, mode: str) -> int:
    """The definition of each rounding mode, on exact fractions."""
    below = floor(value)
    rest = value - below
    if mode == "truncate":
        return below if value >= 0 or rest == 0 else below + 1
    if rest != Fraction(1, 2):
        return below + (rest > Fraction(1, 2))
    if mode == "half_up":
        return below + 1
    if mode == "half_away":
        return below + 1 if value > 0 else below
    return below if below % 2 == 0 else below + 1


@given(st.lists(codes, min_size=1, max_size=8), st.integers(-20, 70), modes)
def test_shift_round_is_the_rounded_fraction(values: list[int], n: int, mode: Rounding) -> None:
    expected = [rounded(Fraction(v) / Fraction(2) ** n, mode) for v in values]
    assert shift_round(np.array(values, np.int64), n, mode).tolist() == expected
    assert shift_round(np.array(values, object), n, mode).tolist() == expected


@pytest.mark.parametrize("mode", MODES)
def test_ties_and_signs(mode: Rounding) -> None:
    table = {
        "half_up": [-1, 0, 1, 2],
        "half_even": [-2, 0, 0, 2],
        "half_away": [-2, -1, 1, 2],
        "truncate": [-1, 0, 0, 1],
    }
    assert shift_round(np.array([-3, -1, 1, 3]), 1, mode).tolist() == table[mode]


@given(st.lists(st.tuples(codes, codes), min_size=1, max_size=8), modes)
def test_divide_round_is_the_rounded_fraction(pairs: list[tuple[int, int]], mode: Rounding) -> None:
    expected = [
        rounded(Fraction(a, b), mode) if b else (a > 0) * 2**40 - (a < 0) * 2**40 for a, b in pairs
    ]
    for dtype in (np.int64, object):
        num, den = (np.array(v, dtype) for v in zip(*pairs, strict=True))
        assert divide_round(num, den, mode).tolist() == expected


@given(
    st.lists(st.integers(-(2**47), 2**47), min_size=1, max_size=6),
    st.integers(0, 2**32 - 1),
    st.integers(-8, 62),
    st.integers(-(2**15), 2**16),
    modes,
)
def test_requantize_is_exact(values: list[int], m: int, n: int, zero: int, mode: Rounding) -> None:
    lo, hi = -(2**15), 2**15 - 1
    expected = [min(max(rounded(Fraction(v * m) / Fraction(2) ** n, mode) + zero, lo), hi) for v in values]
    assert requantize(np.array(values, np.int64), m, n, zero, lo, hi, mode).tolist() == expected


@pytest.mark.parametrize("dtype", [np.int32, np.int64, object])
def test_scalars_stay_scalars(dtype: type) -> None:
    one = np.array(7, dtype)
    assert requantize(one, 3, 1, 0, -100, 100, "half_even").shape == ()
    assert int(requantize(one, 3, 1, 0, -100, 100, "half_even")) == 10
    large = np.array(2**47, dtype if dtype is object else np.int64)
    assert int(requantize(large, 2**32 - 1, 62, 1, -1000, 1000, "half_up")) == 1000
    assert int(divide_round(one, np.array(2, dtype), "half_up")) == 4


def test_products_beyond_64_bits_stay_exact() -> None:
    wide = scaled(np.array([2**47 - 1, -(2**47)]), 2**32 - 1)
    assert wide.tolist() == [(2**47 - 1) * (2**32 - 1), -(2**47) * (2**32 - 1)]
    assert shift_round(np.array([2**61 + 1]), -5, "half_up").tolist() == [(2**61 + 1) * 32]


ratios = st.floats(1e-9, 1.0)


@given(st.lists(ratios, min_size=1, max_size=6), st.sampled_from([8, 16, 32]), st.integers(40, 62))
def test_multiplier_shift_uses_its_bits(real: list[float], bits: int, shift_max: int) -> None:
    numerics = Numerics(multiplier_bits=bits, shift_max=shift_max)
    try:
        m, n = multiplier_shift(real, numerics)
    except TargetError:
        # Only when some channel is too far below the largest for the bits there are, or the shift ends.
        assert min(real) < max(real) * 128 / 2 ** (bits - 1) or max(real) < 2.0 ** (bits - shift_max)
        return
    assert m.min() > 0 and m.max() < 2**bits and n <= shift_max
    assert n == shift_max or round(max(real) * 2.0 ** (n + 1)) >= 2**bits
    for ratio, multiplier in zip(real, m.tolist(), strict=True):
        error = abs(Fraction(multiplier, 2**n) - Fraction(ratio)) if n >= 0 else 0
        assert error <= Fraction(1, 2**n) / 2 + Fraction(ratio) / 2**52
        assert error <= Fraction(numerics.multiplier_error) * Fraction(ratio)


def test_signs_return_in_the_multipliers() -> None:
    m, n = multiplier_shift([0.5, -0.25], Numerics(), signed=True)
    assert m[0] == -2 * m[1] > 0 and m[0] / 2**n == 0.5


def test_powers_of_two_have_multiplier_one() -> None:
    one_bit = Numerics(multiplier_bits=1, shift_left_max=4)
    assert multiplier_shift(0.125, one_bit)[1] == 3
    assert multiplier_shift(8.0, one_bit) == (1, -3)
    with pytest.raises(TargetError, match="away from"):
        multiplier_shift(0.3, one_bit)
    with pytest.raises(TargetError, match="left shift"):
        multiplier_shift(64.0, one_bit)


@pytest.mark.parametrize("ratio", [float("nan"), float("inf"), 0.0, -1.0])
def test_no_multiplier_for_what_is_no_ratio(ratio: float) -> None:
    with pytest.raises(TargetError, match="no integer multiplier"):
        multiplier_shift(ratio, Numerics())


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=8),
    st.floats(2**-30, 2**10, width=32),
    st.integers(0, 255),
)
def test_quantize_rounds_the_quotient_half_to_even(real: list[float], scale: float, zero: int) -> None:
    expected = [min(max(round(Fraction(r / scale)) + zero, 0), 255) for r in real]
    assert quantize(np.array(real), scale, zero, 0, 255).tolist() == expected


def test_quantize_of_what_is_no_number() -> None:
    assert quantize([np.nan, np.inf, -np.inf], 0.1, 3, 0, 255).tolist() == [3, 255, 0]


@given(st.integers(-128, 127), st.floats(2**-20, 2**4, width=32), st.integers(-128, 127))
def test_codes_survive_the_round_trip(code: int, scale: float, zero: int) -> None:
    real = dequantize(code, scale, zero)
    assert real.dtype == np.float32
    assert int(quantize(real, scale, zero, -128, 127)) == code


def test_along_broadcasts_a_channel_vector() -> None:
    assert along((1.0, 2.0), 1, 3).shape == (1, 2, 1)
    assert along((1.0,), None, 2).shape == (1, 1)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_numbers_of_codes_are_rounded_once(dtype: str) -> None:
    """Scale times whole difference in float64, whatever the container; one scale or one for each channel."""
    ends = np.iinfo(dtype)
    codes = np.random.default_rng(0).integers(ends.min // 2, ends.max // 2, (3, 4, 5), dtype)
    channels = np.arange(4)[None, :, None]
    scales: list[tuple[object, object]] = [
        (0.0321, 7), (float(np.float32(0.0321)), -3), (1e-44, 1), (3e38, 0),
        (np.full((1, 4, 1), 0.7) ** channels, channels), (np.array([0.5, 0.3]).reshape(2, 1, 1, 1), 0),
    ]
    for scale, zero in scales:
        exact = codes.astype(object) - np.asarray(zero, object)
        with np.errstate(over="ignore"):
            wanted = (np.asarray(scale, np.float64) * exact.astype(np.float64)).astype(np.float32)
            found = dequantize(codes, scale, zero)         # type: ignore[arg-type]
        assert found.dtype == np.float32 and found.tobytes() == wanted.tobytes()
        assert found.shape == wanted.shape
