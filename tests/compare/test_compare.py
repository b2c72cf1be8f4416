"""Tensors compared: where they differ, the sums over samples, two sides, and the first wrong prefix."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from npuflow.compare.comparison import Comparison
from npuflow.compare.difference import difference, first, first_prefix, unequal
from npuflow.compare.sides import Side, compared


def test_nan_equals_nan_and_another_shape_differs_everywhere() -> None:
    a, b = np.array([[1.0, nan], [inf, 2.0]]), np.array([[1.0, nan], [inf, nan]])
    assert unequal(a, b).tolist() == [[False, False], [False, True]]
    assert first(unequal(a, b)) == (1, 1) and first(unequal(a, a)) is None
    assert unequal(a, a[:1]).all() and unequal(a, a[:1]).shape == (2, 2)
    assert not unequal(np.array([1, 2], np.int8), np.array([1, 2], np.uint8)).any()
    assert unequal(np.array(["a", "b"]), np.array(["a", "c"])).tolist() == [False, True]


def test_a_difference_tells_the_first_element_beyond_the_tolerance() -> None:
    a = np.array([[0.0, 1.0, -4.0]])
    found = difference("y", a, np.array([[0.0, 1.25, -3.5]]), tolerance=0.3)
    assert (found.different, found.max_abs, found.index, found.sides) == (2, 0.5, (0, 2), (-4.0, -3.5))
    assert found.peak == 4.0 and found.diverges(0.3) and not found.diverges(0.5)
    same = difference("y", a, a)
    assert (same.sqnr, same.cosine, same.different) == (None, 1.0, 0)
    strange = difference("y", a, np.array([[0.0, nan, -4.0]]))
    assert (strange.strange, strange.max_abs, strange.sqnr) == (1, inf, -200.0)


def test_an_array_of_another_shape_diverges_also_from_an_empty_one() -> None:
    found = difference("y", np.zeros((0, 4)), np.zeros((2, 4)))
    assert found.different and found.diverges(1.0) and "shapes" in found.note


def test_codes_are_numbers_above_and_below_the_code_of_zero() -> None:
    a, b = np.array([138, 128], np.uint8), np.array([139, 128], np.uint8)
    found = difference("y", a, b, codes=True, zero=128)
    assert found.sqnr == pytest.approx(20) and found.sides == (138, 139)


def test_sums_over_samples_are_those_of_all_samples_together() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 50))
    apart, whole = Comparison(), Comparison()
    for real, made in zip(a, b, strict=True):
        apart.add(real, made)
    whole.add(a, b)
    assert apart.decibels == pytest.approx(whole.decibels)
    assert apart.cosine == pytest.approx(float(np.corrcoef(a.ravel(), b.ravel())[0, 1]), abs=0.05)
    other = Comparison()
    other.add(a, a[:2])                                    # counts as zeros
    assert (other.ratio, other.decibels, other.cosine) == (1.0, 0.0, 0.0)
    none = Comparison()
    none.add(np.array([nan, 3.0]), np.array([1.0, 3.0]))
    assert (none.strange, none.measured, none.cosine) == (1, None, 1.0)


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_the_first_wrong_prefix(count: int) -> None:
    for wanted in range(1, count + 1):
        asked: list[int] = []
        assert first_prefix(count, lambda k, w=wanted, a=asked: a.append(k) or k >= w) == wanted
        assert len(asked) <= 3 and not {0, count} & set(asked)


def test_sides_compare_codes_where_both_have_them_and_keep_the_leading_order() -> None:
    codes = np.array([1, 2], np.int8)
    quant = {"scale": [0.5], "zero_point": [0]}
    real = {"a": codes * 0.5, "b": codes * 0.5}
    program = Side({"b": codes}, real, {"b": quant}, ["b", "a"], {"b": "conv"}, leads=True)
    other = Side({"b": codes}, {**real, "c": codes}, {}, ["a", "b", "c"])
    for pair in ((program, other), (other, program)):
        found = compared(*pair, 0.0)
        assert [(o.difference.name, o.difference.codes, o.layer) for o in found] == [
            ("b", True, "conv"), ("a", False, ""),
        ]
    other.quants["b"] = {"scale": [0.25], "zero_point": [0]}   # codes of another meaning: numbers compare
    assert [o.difference.codes for o in compared(program, other, 0.0)] == [False, False]
