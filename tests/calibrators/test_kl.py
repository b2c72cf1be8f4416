"""The method `kl` against the published loops on raw activations, and where those lose a tensor."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.calibrators import CALIBRATORS, Grid
from npuflow.testing.calibrator import SIGNED, UNSIGNED, distributions, statistics_of
from tests.calibrators.test_methods import KINDS, data, observed


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


@pytest.mark.parametrize("kind", sorted(distributions()))
@pytest.mark.parametrize("smoothing", [0.0, 8.0])
def test_kl_leaves_out_only_what_cannot_be_best(kind, smoothing) -> None:
    from npuflow.calibrators import kl

    statistics = observed(data(kind))
    counts = statistics.histogram(512, 0.0, max(-statistics.lo, statistics.hi), absolute=True)
    ready = counts.copy()
    ready[0] = ready[1]
    ready = kl.blurred(ready, smoothing) if smoothing else ready
    enough = int(np.argmax(np.cumsum(ready) >= (1 - kl.MOST) * ready.sum())) + 1 if smoothing else 0
    kept = np.arange(max(64, enough), 513)
    every = kl.divergences(ready, kept, 64)
    best = int(kept[np.argmin(every)])
    assert kl.least_divergent(counts, 64, smoothing) == (512 if best > 512 - 4 * smoothing else best)
    assert (kl.least_possible(ready, kept, 64) <= every * (1 + 1e-7) + 1e-9).all()


def test_kl_is_not_misled_by_the_zeros_of_a_relu() -> None:
    raw = np.clip(np.random.default_rng(3).normal(-1.5, 2, 50000), 0, 6).astype(np.float32)
    assert CALIBRATORS["kl"]()(observed(raw), UNSIGNED)[1] > 3.0


def test_kl_clips_a_lone_outlier() -> None:
    _, hi = CALIBRATORS["kl"]()(observed(data("outlier")), SIGNED)
    assert 2.0 < hi < 10.0


@pytest.mark.parametrize("size", [100, 2704, 50000])
@pytest.mark.parametrize("spread", [0.3, 10.0])
def test_kl_clips_no_values_away_that_lie_far_from_zero(size, spread) -> None:
    """All mass in the last bin does not diverge from all mass in the last bin; a
    hundred values have no shape."""
    raw = np.random.default_rng(4).gamma(2, spread, size).astype(np.float32) + np.float32(15)
    for method in (CALIBRATORS["kl"](), CALIBRATORS["kl"](sides="apart")):
        lo, hi = method(observed(raw), UNSIGNED)
        assert lo == 0 and np.mean(raw > hi) <= (0 if size < 2048 else 0.1)
        lo, hi = method(observed(-raw), UNSIGNED)
        assert hi == 0 and np.mean(-raw < lo) <= (0 if size < 2048 else 0.1)


def test_kl_smoothing_sees_past_a_plain_background() -> None:
    """Half of the values are one; clipping just above them costs the published procedure nothing."""
    statistics = observed(data("background"))
    assert CALIBRATORS["kl"](smoothing=0)(statistics, UNSIGNED)[1] < 1.0
    assert CALIBRATORS["kl"]()(statistics, UNSIGNED)[1] > 1.9


def test_kl_blur_is_a_convolution() -> None:
    from npuflow.calibrators.kl import blurred

    counts = np.random.default_rng(0).poisson(5, 300).astype(float)
    places = np.arange(300)
    kernel = np.exp(-0.5 * (np.arange(-300, 301) / 4.0) ** 2)
    kernel[kernel < 1e-3] = 0
    kernel /= kernel.sum()
    near = range(-16, 17)
    slow = [
        sum(kernel[300 + k] * counts[abs(i + k) if i + k < 300 else 599 - i - k] for k in near)
        for i in places
    ]
    assert np.allclose(blurred(counts, 4.0), slow)


def test_kl_sides_apart() -> None:
    raw = np.concatenate([data("normal"), np.abs(data("normal")) * 4, [60.0]]).astype(np.float32)
    lo, hi = CALIBRATORS["kl"](sides="apart")(observed(raw), UNSIGNED)
    positive = raw[raw > 0].astype(np.float64)
    counts = np.histogram(positive, 2048, (0, positive.max()))[0].astype(float)
    from npuflow.calibrators.kl import least_divergent

    assert hi == pytest.approx(least_divergent(counts, 128, 8.0) * positive.max() / 2048, rel=0.02)
    assert -lo < 0.5 * hi


@pytest.mark.parametrize("bits", [4, 6, 8, 12, 16])
def test_kl_has_levels_for_the_width(bits: int) -> None:
    """Its 128 levels are those of 8 bits: wider codes need no clipping, narrower ones more."""
    x = np.random.default_rng(5).laplace(0, 1, 40000).astype(np.float32)
    found = {"x": statistics_of([x])}
    kl, grid = CALIBRATORS["kl"], Grid(bits, True, True)
    top = kl()(found["x"], grid)[1]
    whole = float(np.abs(x).max())
    assert top == pytest.approx(whole) if bits >= 12 else top < whole
    if bits < 8:
        assert top < kl()(found["x"], Grid(8, True, True))[1]
