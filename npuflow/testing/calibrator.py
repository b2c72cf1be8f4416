"""Published suite for threshold methods: what every one of them must keep, on
distributions that networks have."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from npuflow.calibrators import Calibrator, Grid
from npuflow.ir.types import Array
from npuflow.statistics.observe import Counter
from npuflow.statistics.statistics import StatisticsColumn, merged

SIGNED = Grid(8, True, True)
UNSIGNED = Grid(8, False, False)
GRIDS = (
    SIGNED,
    UNSIGNED,
    Grid(8, True, False),
    Grid(8, True, True, narrow=True),
    Grid(8, True, True, power_of_two=True),
    Grid(4, True, True),
    Grid(4, False, False),
    Grid(16, True, True),
    Grid(16, False, False),
)


def statistics_of(*samples: Array) -> StatisticsColumn:
    """The statistics of one tensor that was seen so in each sample."""
    counter = Counter(("x",))
    found = merged((str(i), counter.observe([one])) for i, one in enumerate(samples))
    assert found is not None
    return found["x"]


def distributions(size: int = 50000, seed: int = 7) -> dict[str, Array]:
    """Shapes that activations take: two-sided, one-sided, clipped, skewed, with
    outliers, mostly one value."""
    rng = np.random.default_rng(seed)
    normal, half = rng.normal(0, 1, size), size // 2
    made = {
        "normal": normal,
        "laplace": rng.laplace(0, 1, size),
        "relu": np.maximum(rng.normal(-0.5, 1, size), 0),
        "relu6": np.clip(rng.normal(0.5, 2, size), 0, 6),
        "skewed": rng.gamma(2, 1, size) - 0.7,
        "outlier": np.concatenate([normal, [40.0]]),
        "negative": -np.abs(normal) - 0.1,
        "background": np.concatenate([np.full(half, -0.81), rng.uniform(-0.8, 2.0, size - half)]),
        "swish": normal * 3 / (1 + np.exp(-normal * 3)),
        "constant": np.full(size, 0.3),
        "tiny": normal * 1e-20,
    }
    return {name: values.astype(np.float32) for name, values in made.items()}


def check(method: Calibrator, grids: Sequence[Grid] = GRIDS, *, covers: float = 1.0) -> None:
    """Every rule at once; `covers`: how far beyond the observed values a range may reach, as
    a factor (powers of two: 2)."""
    for name, raw in distributions(20000).items():
        whole = statistics_of(raw)
        shuffled = statistics_of(np.random.default_rng(1).permutation(raw))
        for grid in grids:
            lo, hi = method(whole, grid)
            what = f"{type(method).__name__} on {name}, {grid}: [{lo}, {hi}]"
            assert isinstance(lo, float) and isinstance(hi, float), what
            assert isfinite(lo) and isfinite(hi) and lo <= 0 <= hi, what
            top = float(np.max(np.abs(raw))) * covers * 1.001
            assert max(-lo, hi) <= top + 1e-30, what
            if grid.symmetric:
                assert lo == -hi if grid.signed else lo == 0.0, what
            elif covers == 1.0:
                assert (
                    lo >= min(float(raw.min()), 0.0) * 1.001 and hi <= max(float(raw.max()), 0.0) * 1.001
                ), what
            assert method(shuffled, grid) == (lo, hi), f"{what}: depends on the order of the values"
    _zeros_and_scales(method)


def _zeros_and_scales(method: Calibrator) -> None:
    for grid in (SIGNED, UNSIGNED):
        assert method(statistics_of(np.zeros(100, np.float32)), grid) == (0.0, 0.0), (
            "a range for nothing but zeros"
        )
        raw = distributions(20000)["skewed"]
        one, eight = (method(statistics_of(raw * np.float32(factor)), grid) for factor in (1, 8))
        assert np.allclose(np.array(one) * 8, eight, rtol=1e-6), (
            f"{type(method).__name__} depends on the unit"
        )
        holed = np.concatenate([raw, np.array([np.nan, np.inf, -np.inf], np.float32)])
        assert method(statistics_of(holed), grid) == one, (
            f"{type(method).__name__} is moved by NaN or infinity"
        )
