"""Patterns of zeros: what is kept costs least, and what is kept is refitted in least squares."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from npuflow.ir.sparsity import Pattern, refitted, selected


def moments(rng: np.random.Generator, terms: int) -> np.ndarray:
    columns = rng.normal(size=(200, terms)) @ (np.eye(terms) + 0.5 * rng.normal(size=(terms, terms)))
    return columns.T @ columns / len(columns)


@pytest.mark.parametrize("text", ["", "2", "4:2", "0:4", "a:b", "2:4:8", "-1:4"])
def test_what_is_no_pattern(text: str) -> None:
    assert Pattern.read(text) is None


def test_a_pattern_holds_or_not() -> None:
    pattern = Pattern.read("2:4")
    assert pattern == Pattern(2, 4) and str(pattern) == "2:4"
    rows = np.array([[1, 0, 0, 2, 0, 0, 0, 0], [0, 3, 4, 0, 5, 0, 0, 6]])
    assert pattern.holds(rows) and not pattern.holds(rows[:, :6])
    rows[0, 1] = 7
    assert not pattern.holds(rows)


@pytest.mark.parametrize("pattern", [Pattern(2, 4), Pattern(1, 4), Pattern(4, 8), Pattern(8, 16)])
def test_what_is_kept_follows_the_pattern(pattern: Pattern) -> None:
    rng = np.random.default_rng(1)
    weight, gram = rng.normal(size=(6, 32)), moments(rng, 32)
    mask = selected(weight, gram, pattern)
    groups = mask.reshape(-1, pattern.of).sum(1)
    assert (groups == pattern.keep).all() and pattern.holds(weight * mask)


def test_refitted_weights_are_those_of_least_squares() -> None:
    rng = np.random.default_rng(2)
    weight, gram = rng.normal(size=(5, 12)), moments(rng, 12)
    mask = rng.random((5, 12)) < 0.5
    mask[0] = False
    made = refitted(gram, weight @ gram, mask)
    root = np.linalg.cholesky(gram).T
    for own, keep, found in zip(weight, mask, made, strict=True):
        want = np.zeros(12)
        want[keep] = np.linalg.lstsq(root[:, keep], root @ own, rcond=None)[0]
        np.testing.assert_allclose(found, want, atol=1e-9)


def test_selection_is_near_the_best_and_beats_magnitude() -> None:
    rng, pattern = np.random.default_rng(3), Pattern(2, 4)
    weight, gram = rng.normal(size=(8, 8)), moments(rng, 8)

    def cost(mask: np.ndarray) -> np.ndarray:
        off = weight - refitted(gram, weight @ gram, mask)
        return ((off @ gram) * off).sum(1)

    pairs = list(combinations(range(4), 2))
    every = []
    for one, two in product(pairs, pairs):
        mask = np.zeros((8, 8), bool)
        mask[:, [*one, *(4 + i for i in two)]] = True
        every.append(cost(mask))
    best = np.min(every, axis=0).sum()
    found = cost(selected(weight, gram, pattern)).sum()
    assert best <= found < 1.5 * best
    assert found < 0.8 * cost(pattern.strongest(np.abs(weight))).sum()
