"""Block floating point: every code of an element, scalar readings of the published definitions, and bytes."""

from __future__ import annotations

from fractions import Fraction
from math import inf, isnan, nan

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuflow.hw.blocks import decoded, encoded, packed, rounded
from npuflow.hw.elements import ELEMENTS, having
from tests.sim.block_scalar import FORMATS, encoded_block, read_block

NAMES = having("block")
FLOATS = {
    "mxfp8": ml_dtypes.float8_e4m3fn,
    "mxfp8_e5m2": ml_dtypes.float8_e5m2,
    "mxfp4": ml_dtypes.float4_e2m1fn,
    "mxfp6": ml_dtypes.float6_e2m3fn,
    "mxfp6_e3m2": ml_dtypes.float6_e3m2fn,
}
numbers = st.one_of(
    st.floats(width=32),
    st.floats(-300, 300, width=16),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0**-126, 2.0**-149, 127.5 / 64, -127.5 / 64, 1.75, 5.0, 0.25]),
)


def same(found: float, want: float | Fraction) -> bool:
    return (isnan(found) and isnan(want)) or found == want


def test_the_scalar_reading_knows_every_block_type() -> None:
    assert set(FORMATS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_blocks_are_what_their_definition_says(name: str, data: st.DataObject) -> None:
    """Two blocks, the second one short: the bytes of the scalar reading, and the numbers that it reads."""
    size = FORMATS[name].size
    count = size + data.draw(st.integers(1, size))
    values = data.draw(st.lists(numbers, min_size=count, max_size=count))
    codes = encoded(np.array(values), name, 0)
    raw = packed(codes, name, 0)
    blocks = [values[:size], [*values[size:], *[0.0] * (2 * size - count)]]
    for k, block in enumerate(blocks):
        want = encoded_block(block, name)
        assert raw[k].tobytes() == want
        found = decoded(codes[k * size : (k + 1) * size], name)
        for one, real in zip(found.tolist(), read_block(want, name), strict=False):
            assert same(one, real)


@pytest.mark.parametrize("name", NAMES)
def test_every_code_of_an_element_is_read(name: str) -> None:
    row = ELEMENTS[name]
    assert row.block is not None
    above = row.bits + bool(row.block.pair)
    element = np.arange(1 << above)
    for exponent in (0, 1, 127, 254, 255):
        found = decoded(exponent << above | element, name)
        want = [read_block(_alone(name, exponent, e), name)[0] for e in element.tolist()]
        assert all(map(same, found.tolist(), want))


def _alone(name: str, exponent: int, code: int) -> bytes:
    """A block with this code in its first place, and zeros behind it."""
    form = FORMATS[name]
    bits = exponent | (code >> form.bits) << 8 | (code & ((1 << form.bits) - 1)) << form.shared
    return bits.to_bytes((form.shared + form.size * form.bits) // 8, "little")


@pytest.mark.parametrize("name", FLOATS)
def test_float_elements_are_those_of_ml_dtypes(name: str) -> None:
    """The patterns of the OCP's FP8 and FP4, and rounding to them, beside a scale of 1."""
    row, kind = ELEMENTS[name], FLOATS[name]
    every = np.arange(1 << row.bits, dtype=np.uint8)
    want = every.view(kind).astype(np.float64)
    np.testing.assert_array_equal(decoded(127 << row.bits | every.astype(np.int64), name), want)
    top = float(ml_dtypes.finfo(kind).max)
    rng = np.random.default_rng(0)
    real = np.clip(rng.normal(size=(200, 32)) * np.exp(rng.normal(0, 3, (200, 32))), -top, top)
    real[:, 0] = top  # the exponent of the block is then 0
    found = encoded(real, name, 1)
    assert set((found >> row.bits).reshape(-1).tolist()) == {127}
    np.testing.assert_array_equal(
        found.astype(np.int64) & ((1 << row.bits) - 1), real.astype(kind).view(np.uint8)
    )


@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_a_block_holds_stay(name: str) -> None:
    rng = np.random.default_rng(1)
    once = rounded(rng.normal(size=(7, 3, 70)) * np.exp(rng.normal(0, 5, (7, 3, 70))), name, 2)
    np.testing.assert_array_equal(rounded(once, name, 2), once)


@pytest.mark.parametrize("name", NAMES)
def test_blocks_run_along_any_axis(name: str) -> None:
    value, size = np.random.default_rng(2).normal(size=(3, 37, 5)), FORMATS[name].size
    want = np.moveaxis(encoded(np.moveaxis(value, 1, 2), name, 2), 2, 1)
    codes = encoded(value, name, 1)
    np.testing.assert_array_equal(codes, want)
    assert codes.dtype == ELEMENTS[name].numpy
    raw = packed(codes, name, 1)
    assert raw.shape == (3, -(-37 // size), 5, ELEMENTS[name].block_bytes)
    turned = packed(np.swapaxes(codes, 1, 2), name, 2)
    np.testing.assert_array_equal(raw, np.swapaxes(turned, 1, 2))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("odd", [inf, -inf, nan])
def test_a_block_with_no_number_in_it_is_no_number(name: str, odd: float) -> None:
    size = FORMATS[name].size
    value = np.ones(2 * size)
    value[size - 1] = odd
    found = rounded(value, name, 0)
    assert np.isnan(found[:size]).all() and (found[size:] == 1).all()
    raw = packed(encoded(value, name, 0), name, 0)[0].tolist()
    assert raw == [255, *[0] * (ELEMENTS[name].block_bytes - 1)]


def test_worked_examples() -> None:
    """By hand: ties to even, saturation, micro-exponents, the least exponents."""
    one = [1.0, 1.5 / 64, 2.5 / 64, 127.0 / 64, 127.5 / 64, -127.5 / 64, 0.0, -1.0]
    want = [1.0, 2 / 64, 2 / 64, 127 / 64, 127 / 64, -127 / 64, 0.0, -1.0]
    assert rounded(one, "bfp16", 0).tolist() == want
    pair = [1.0, 0.5 / 64, 0.5 / 64, 0.25 / 64]
    assert rounded(pair, "mx9", 0).tolist() == [1.0, 0.0, 0.5 / 64, 0.0]  # the second pair has finer steps
    assert rounded([1.0, 0.25, 0.3, -0.3], "mx6", 0).tolist() == [1.0, 0.25, 5 / 16, -5 / 16]
    assert rounded([449.0, 2.0**-10], "mxfp8", 0).tolist() == [448.0, 0.0]
    assert rounded([7.0, 0.25, 0.75], "mxfp4", 0).tolist() == [6.0, 0.0, 1.0]
    tiny = 2.0**-133
    assert rounded([tiny], "bfp16", 0).tolist() == [0.0]  # half a step of 2^-132: to the even zero
    assert rounded([tiny], "mx9", 0).tolist() == [tiny] and rounded([tiny], "mxint8", 0).tolist() == [tiny]
