"""Threshold methods against independent computations on raw activations."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.engine.calibrate.kernels import KEYS
from npuflow.engine.calibrate.observe import Observation, Observer
from npuflow.engine.calibrate.statistics import TensorStatistics, empty
from npuflow.engine.calibrate.thresholds import Layer
from npuflow.ir.contracts import CALIBRATORS, Grid

SIGNED = Grid(8, True, True)
UNSIGNED = Grid(8, False, False)


def observed(raw: np.ndarray) -> TensorStatistics:
    observer = Observer.__new__(Observer)
    observer._tallies, observer._buffer = np.zeros((2, KEYS), np.uint32), np.zeros(1 << 20, np.uint8)
    counts = np.zeros((1, 4), np.int64)
    lo, hi, end = observer._tensor(raw.astype(np.float32), counts[0], 0)
    shard = Observation(("x",), np.float32([lo]), np.float32([hi]), counts, np.array([0, end]), observer._buffer[:end])
    return empty(("x",)).plus([("0", shard)])["x"]


def data(kind: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    return {
        "normal": rng.normal(0, 1, 50000), "laplace": rng.laplace(0, 1, 50000),
        "relu6": np.clip(rng.normal(0.5, 2, 50000), 0, 6), "skewed": rng.gamma(2, 1, 50000) - 0.7,
        "outlier": np.concatenate([rng.normal(0, 1, 50000), [40.0]]),
    }[kind].astype(np.float32)  # fmt: skip


KINDS = ("normal", "laplace", "relu6", "skewed", "outlier")


def loss(raw: np.ndarray, lo: float, hi: float, grid: Grid) -> float:
    """Mean squared error of quantising every raw value."""
    if grid.symmetric:
        first, last = -(grid.levels // 2), grid.levels // 2 - 1
        step = hi / last
    else:
        step = (hi - lo) / (grid.levels - 1)
        first = round(lo / step)
        last = first + grid.levels - 1
    codes = np.clip(np.rint(raw.astype(np.float64) / step), first, last)
    return float(np.mean((codes * step - raw) ** 2))


def test_every_method_is_registered() -> None:
    assert {"minmax", "percentile", "kl", "mse"} <= set(CALIBRATORS.names())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grid", [SIGNED, UNSIGNED])
def test_ranges_contain_zero_and_stay_inside(kind, grid) -> None:
    raw = data(kind)
    top = float(np.abs(raw).max())
    for name in CALIBRATORS.names():
        lo, hi = CALIBRATORS[name]()(observed(raw), grid)
        assert lo <= 0 <= hi and hi > lo
        assert -lo <= top * 1.000001 and hi <= top * 1.000001
        if grid.symmetric:
            assert lo == -hi


def test_minmax_is_exact() -> None:
    raw = data("skewed")
    assert CALIBRATORS["minmax"]()(observed(raw), UNSIGNED) == (float(raw.min()), float(raw.max()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("percentile", [99.0, 99.9, 99.99])
def test_percentile_against_sorting(kind, percentile) -> None:
    raw = data(kind)
    method = CALIBRATORS["percentile"](percentile=percentile)
    lo, hi = method(observed(raw), SIGNED)
    assert hi == pytest.approx(np.quantile(np.abs(raw), percentile / 100, method="inverted_cdf"), rel=2**-9)
    lo, hi = method(observed(raw), UNSIGNED)
    assert hi == pytest.approx(max(0, np.quantile(raw, percentile / 100, method="inverted_cdf")), rel=2**-9)
    low = np.quantile(raw, 1 - percentile / 100, method="inverted_cdf")
    assert lo == pytest.approx(min(0, low), rel=2**-8, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grid", [SIGNED, UNSIGNED, Grid(4, True, True), Grid(4, False, False)])
def test_mse_is_near_the_best_of_an_exhaustive_search(kind, grid) -> None:
    raw = data(kind)
    lo, hi = CALIBRATORS["mse"]()(observed(raw), grid)
    mine = loss(raw, lo, hi, grid)
    low, high = min(float(raw.min()), 0.0), max(float(raw.max()), 0.0)
    if grid.symmetric:
        top = max(-low, high)
        best = min(loss(raw, -top * a, top * a, grid) for a in np.linspace(0.02, 1, 300))
    else:
        shares = np.linspace(0.05, 1, 40)
        best = min(loss(raw, low * a, high * b, grid) for a in (shares if low < 0 else [1.0]) for b in shares)
    assert mine <= (1.02 if grid.bits == 8 else 1.05) * best


def plain_kl(raw: np.ndarray, bins: int, levels: int) -> float:
    """The published procedure, loop by loop, on a histogram of raw magnitudes."""
    magnitudes = np.abs(raw.astype(np.float64))
    top = magnitudes.max()
    counts = np.histogram(magnitudes, bins, (0, top))[0].astype(np.float64)
    counts[0] = counts[1]
    best, threshold = np.inf, top
    for kept in range(levels, bins + 1):
        p = counts[:kept].copy()
        p[-1] += counts[kept:].sum()
        q = np.zeros(kept)
        groups = np.digitize(np.arange(kept), np.linspace(0, kept, levels + 1)) - 1
        for group in range(levels):
            part = (groups == group) & (counts[:kept] > 0)
            if part.any():
                q[part] = counts[:kept][part].mean()
        if q.sum() == 0 or ((p > 0) & (q == 0)).any():
            continue
        p, q = p / p.sum(), q / q.sum()
        filled = p > 0
        divergence = float((p[filled] * np.log(p[filled] / q[filled])).sum())
        if divergence < best - 1e-12:
            best, threshold = divergence, kept * top / bins
    return float(threshold)


@pytest.mark.parametrize("kind", KINDS)
def test_kl_against_the_published_loops(kind) -> None:
    from npuflow.calibrators.kl import least_divergent

    raw = data(kind)
    top = float(np.abs(raw).max())
    counts = np.histogram(np.abs(raw.astype(np.float64)), 512, (0, top))[0].astype(np.float64)
    mine = least_divergent(counts, 64) * top / 512
    assert mine == pytest.approx(plain_kl(raw, 512, 64), rel=1e-9)


def test_kl_is_not_misled_by_the_zeros_of_a_relu() -> None:
    raw = np.clip(np.random.default_rng(3).normal(-1.5, 2, 50000), 0, 6).astype(np.float32)
    assert CALIBRATORS["kl"]()(observed(raw), UNSIGNED)[1] > 3.0


def test_kl_clips_a_lone_outlier() -> None:
    _, hi = CALIBRATORS["kl"]()(observed(data("outlier")), SIGNED)
    assert 2.0 < hi < 10.0


def test_power_of_two_grids_are_judged_by_their_own_steps() -> None:
    raw = np.linspace(-1, 1.1, 40001).astype(np.float32)
    grid = Grid(8, True, True, power_of_two=True)
    _, hi = CALIBRATORS["mse"]()(observed(raw), grid)
    step = 2.0 ** np.ceil(np.log2(hi / 127) - 1e-6)
    candidates = {s: float(np.mean((np.clip(np.rint(raw / s), -128, 127) * s - raw) ** 2)) for s in 2.0 ** np.arange(-9, -4)}
    assert step == min(candidates, key=candidates.__getitem__)


def test_nothing_but_zeros() -> None:
    for name in CALIBRATORS.names():
        assert CALIBRATORS[name]()(observed(np.zeros(100)), UNSIGNED) == (0.0, 0.0)


def test_a_range_by_hand_goes_from_low_to_high() -> None:
    assert not list(Layer(("conv",), range=(-1.0, 2.0)).check()) and not list(Layer(("conv",)).check())
    for wrong in ((1.0, 0.0), (1.0, 1.0), (float("nan"), 1.0)):
        assert [fault.field for fault in Layer(("conv",), range=wrong).check()] == ["range"]
