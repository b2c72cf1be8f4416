"""Infinities among activations, against the same method on raw values clipped by hand."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.calibrators import CALIBRATORS, Grid
from npuflow.testing.calibrator import statistics_of
from npuflow.tune.ranges.thresholds import trimmed


def observed(raw: np.ndarray):
    return statistics_of(raw)


@pytest.mark.parametrize(("bounds", "ends"), [(None, None), ((-8.0, 9.0), (-8.0, 9.0))])
@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "kl", "octav"])
def test_infinities_count_as_the_bound_or_the_outermost_number(method, bounds, ends) -> None:
    raw = np.random.default_rng(5).normal(0, 1, 20_000).astype(np.float32)
    raw[::500], raw[7::2000], raw[11] = np.inf, -np.inf, np.nan
    numbers = raw[np.isfinite(raw)]
    low, high = ends or (numbers.min(), numbers.max())
    clipped = np.clip(raw[~np.isnan(raw)], low, high)
    grid, chosen = Grid(8, True, False), CALIBRATORS[method]()
    found = trimmed(observed(raw), bounds)
    if bounds is not None:
        found = found.within(bounds, "clip")
    wanted = chosen(observed(clipped), grid)
    assert found.count == clipped.size
    np.testing.assert_allclose(chosen(found, grid), wanted, rtol=0, atol=0.02 * (high - low))
    without = chosen(observed(numbers), grid)
    if method == "percentile" and bounds is None:      # 41 of 20000 lie at the ends now: none is cut off
        assert found.hi == numbers.max() and chosen(found, grid)[1] > without[1]


def test_statistics_without_infinities_stay_as_they_are() -> None:
    one = observed(np.arange(10, dtype=np.float32))
    assert trimmed(one) is one
