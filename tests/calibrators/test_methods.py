"""Threshold methods against independent computations on raw activations."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.calibrators import CALIBRATORS, TAILS, Grid
from npuflow.testing.calibrator import SIGNED, UNSIGNED, check, distributions, statistics_of
from npuflow.tune.ranges.thresholds import LayerCalibration
from tests.tiers import spread

KINDS = ("normal", "laplace", "relu6", "skewed", "outlier")


def observed(raw: np.ndarray):
    return statistics_of(raw.astype(np.float32))


def data(kind: str) -> np.ndarray:
    return distributions()[kind]


def batches(count: int = 12, size: int = 4000) -> list[np.ndarray]:
    """Samples of different spread, one of them far out."""
    rng = np.random.default_rng(11)
    spreads = [*np.linspace(0.5, 2, count - 1), 9.0]
    return [(rng.normal(0.2, s, size)).astype(np.float32) for s in spreads]


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
    assert set(CALIBRATORS.names()) >= {
        "minmax",
        "ema",
        "mean",
        "nstd",
        "percentile",
        "max_percentile",
        "kl",
        "mse",
        "aciq_gauss",
        "aciq_laplace",
        "octav",
        "pow2_nonoverflow",
        "pow2_mse",
    }


@pytest.mark.parametrize("name", CALIBRATORS.names())
def test_published_suite(name) -> None:
    check(CALIBRATORS[name](), covers=2.1 if name.startswith("pow2") else 1.0)


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


@pytest.mark.parametrize(
    ("kind", "grid"), spread(KINDS, [SIGNED, UNSIGNED, Grid(4, True, True), Grid(4, False, False)])
)
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


def test_power_of_two_grids_are_judged_by_their_own_steps() -> None:
    raw = np.linspace(-1, 1.1, 40001).astype(np.float32)
    grid = Grid(8, True, True, power_of_two=True)
    _, hi = CALIBRATORS["mse"]()(observed(raw), grid)
    step = 2.0 ** np.ceil(np.log2(hi / 127) - 1e-6)
    candidates = {
        s: float(np.mean((np.clip(np.rint(raw / s), -128, 127) * s - raw) ** 2))
        for s in 2.0 ** np.arange(-9, -4)
    }
    assert step == min(candidates, key=candidates.__getitem__)


@pytest.mark.parametrize(("momentum", "batch"), [(0.9, 1), (0.5, 1), (0.9, 5)])
def test_ema_step_by_step(momentum, batch) -> None:
    samples = batches()
    lo = hi = None
    for start in range(0, len(samples), batch):
        part = np.concatenate(samples[start : start + batch]).astype(np.float64)
        lo = part.min() if lo is None else momentum * lo + (1 - momentum) * part.min()
        hi = part.max() if hi is None else momentum * hi + (1 - momentum) * part.max()
    found = CALIBRATORS["ema"](momentum=momentum, batch=batch)(statistics_of(*samples), UNSIGNED)
    assert found == pytest.approx((lo, hi), rel=1e-9)


def test_mean_of_extrema() -> None:
    samples = batches()
    found = CALIBRATORS["mean"]()(statistics_of(*samples), UNSIGNED)
    assert found == pytest.approx(
        (np.mean([s.min() for s in samples]), np.mean([s.max() for s in samples])), rel=1e-6
    )


@pytest.mark.parametrize("n", [1, 3])
def test_nstd_on_raw_values(n) -> None:
    raw = np.concatenate(batches()).astype(np.float64)
    lo, hi = CALIBRATORS["nstd"](n=n)(statistics_of(*batches()), UNSIGNED)
    assert lo == pytest.approx(max(raw.min(), raw.mean() - n * raw.std()), rel=2e-3)
    assert hi == pytest.approx(min(raw.max(), raw.mean() + n * raw.std()), rel=2e-3)


@pytest.mark.parametrize("share", TAILS)
def test_max_percentile_sample_by_sample(share) -> None:
    samples = batches(size=20011)
    lows, highs = [], []
    for one in samples:
        dropped, ordered = int(share * one.size + 1e-9), np.sort(one)
        lows.append(ordered[dropped])
        highs.append(ordered[one.size - 1 - dropped])
    method = CALIBRATORS["max_percentile"](percentile=100 * (1 - share))
    assert not list(method.check())
    assert method(statistics_of(*samples), UNSIGNED) == pytest.approx((min(lows), max(highs)), rel=2**-8)
    assert [fault.field for fault in CALIBRATORS["max_percentile"](percentile=98.0).check()] == ["percentile"]


def test_aciq_multiples_are_the_published_tables() -> None:
    from npuflow.calibrators.aciq_gauss import alpha as gauss
    from npuflow.calibrators.aciq_laplace import alpha as laplace

    for bits, alpha in {2: 2.83, 3: 3.89, 4: 5.03, 5: 6.2, 6: 7.41, 7: 8.64, 8: 9.89}.items():
        assert laplace(bits) == pytest.approx(alpha, abs=0.011)
    for bits, alpha in {2: 1.71, 3: 2.15, 4: 2.55, 5: 2.93, 6: 3.28, 7: 3.61, 8: 3.92}.items():
        assert gauss(bits) == pytest.approx(alpha, abs=0.011)


@pytest.mark.parametrize(("name", "kind"), [("aciq_gauss", "normal"), ("aciq_laplace", "laplace")])
@pytest.mark.parametrize("bits", [3, 4, 6])
def test_aciq_is_the_best_where_its_assumption_holds(name, kind, bits) -> None:
    raw, grid = data(kind), Grid(bits, False, False)
    lo, hi = CALIBRATORS[name]()(observed(raw), grid)
    best = min(loss(raw, -t, t, grid) for t in np.linspace(0.5, 12, 200))
    assert loss(raw, lo, hi, grid) <= 1.05 * best


def test_aciq_uses_raw_deviations() -> None:
    raw = data("skewed").astype(np.float64)
    grid = Grid(4, False, False)
    _, hi = CALIBRATORS["aciq_laplace"](gamma=0.5)(observed(raw), grid)
    assert hi == pytest.approx(raw.mean() + 0.5 * 5.03 * np.abs(raw - raw.mean()).mean(), rel=5e-3)
    _, hi = CALIBRATORS["aciq_gauss"](gamma=0.5)(observed(raw), grid)
    assert hi == pytest.approx(raw.mean() + 0.5 * 2.55 * raw.std(), rel=5e-3)


@pytest.mark.parametrize("kind", ["normal", "laplace", "outlier", "relu", "swish"])
@pytest.mark.parametrize("bits", [4, 8])
def test_octav_on_raw_values(kind, bits) -> None:
    raw = data(kind).astype(np.float64)
    magnitudes, grid = np.abs(raw), Grid(bits, True, True)
    s = magnitudes[magnitudes > 0].mean()
    for _ in range(60):
        over = magnitudes > s
        held = (magnitudes > 0) & ~over
        s = magnitudes[over].sum() / (held.sum() / (3 * (grid.levels - 1) ** 2) + over.sum())
    assert CALIBRATORS["octav"](rounds=60)(observed(raw), grid)[1] == pytest.approx(
        min(s, magnitudes.max()), rel=2e-3
    )


@pytest.mark.parametrize("kind", ["normal", "laplace", "skewed", "outlier"])
def test_octav_on_asymmetric_grids_is_stationary(kind) -> None:
    raw, grid = data(kind).astype(np.float64), Grid(4, False, False)
    lo, hi = CALIBRATORS["octav"]()(observed(raw), grid)

    def noise(lo: float, hi: float) -> float:
        inside = ((raw >= lo) & (raw <= hi) & (raw != 0)).sum()
        out = (np.maximum(raw - hi, 0) ** 2 + np.maximum(lo - raw, 0) ** 2).sum()
        return float(((hi - lo) / (grid.levels - 1)) ** 2 / 12 * inside + out)

    shares = np.linspace(0.5, 1.5, 41)
    best = min(noise(lo * a, hi * b) for a in shares for b in shares)
    assert noise(lo, hi) <= 1.02 * best


@pytest.mark.parametrize("grid", [SIGNED, UNSIGNED, Grid(4, True, True)])
@pytest.mark.parametrize("kind", KINDS)
def test_powers_of_two(kind, grid) -> None:
    raw = data(kind)
    low, high = min(float(raw.min()), 0.0), max(float(raw.max()), 0.0)
    need = (
        max(high / (grid.levels // 2 - 1), -low / (grid.levels // 2))
        if grid.symmetric
        else (high - low) / (grid.levels - 1)
    )
    widest = 2.0 ** int(np.ceil(np.log2(need)))

    def step(found: tuple[float, float]) -> float:
        return (
            found[1] / (grid.levels // 2 - 1) if grid.symmetric else (found[1] - found[0]) / (grid.levels - 1)
        )

    assert step(CALIBRATORS["pow2_nonoverflow"]()(observed(raw), grid)) == pytest.approx(widest)
    spans = [CALIBRATORS["pow2_mse"](candidates=n)(observed(raw), grid) for n in (1, 5)]
    assert step(spans[0]) == pytest.approx(widest)
    tried = {widest / 2**i: loss(raw, *scaled(spans[0], 2.0**-i), grid) for i in range(5)}
    assert tried[min(tried, key=lambda s: abs(s - step(spans[1])))] <= 1.001 * min(tried.values())


def scaled(span: tuple[float, float], factor: float) -> tuple[float, float]:
    return span[0] * factor, span[1] * factor


def test_modal_merges_take_a_vote_per_sample() -> None:
    samples = [s * f for s, f in zip(batches(9), (1, 1, 1, 1, 1, 1, 1, 1, 1), strict=True)]
    wide = [-127 * 2.0**e for e in range(-20, 20)]
    votes = [min(-w / 127 for w in wide if -w >= max(s.max(), -s.min() * 127 / 128)) for s in samples]
    mode = max(set(votes), key=lambda v: (votes.count(v), v))
    found = CALIBRATORS["pow2_nonoverflow"](merge="modal")(statistics_of(*samples), SIGNED)
    assert found[1] / 127 == mode
    best = []
    for one in samples:
        top = min(-w / 127 for w in wide if -w >= max(one.max(), -one.min() * 127 / 128))
        steps = [top / 2**i for i in range(5)]
        best.append(min(steps, key=lambda s, one=one: loss(one, -127 * s, 127 * s, SIGNED)))
    mode = max(set(best), key=lambda v: (best.count(v), v))
    assert CALIBRATORS["pow2_mse"](merge="modal")(statistics_of(*samples), SIGNED)[1] / 127 == mode


def test_a_range_by_hand_goes_from_low_to_high() -> None:
    assert not list(LayerCalibration(("conv",), range=(-1.0, 2.0)).check()) and not list(
        LayerCalibration(("conv",)).check()
    )
    for wrong in ((1.0, 0.0), (1.0, 1.0), (float("nan"), 1.0)):
        assert [fault.field for fault in LayerCalibration(("conv",), range=wrong).check()] == ["range"]


@pytest.mark.parametrize("beyond", ["clip", "drop"])
@pytest.mark.parametrize("name", ["minmax", "percentile", "mse", "nstd", "mean"])
def test_bounds_leave_the_rest_as_it_was(name, beyond) -> None:
    """A mask of -10000, clipped or left out, is as if the raw values had been treated so."""
    raw = np.concatenate([data("normal"), np.full(5000, -10000, np.float32)])
    treated = np.clip(raw, -8, 8) if beyond == "clip" else raw[raw > -8]
    method = CALIBRATORS[name]()
    found = method(observed(raw).within((-8.0, 8.0), beyond), UNSIGNED)
    assert found == pytest.approx(method(observed(treated), UNSIGNED), rel=5e-3)


def test_second_largest_in_place_of_infinity() -> None:
    raw = np.array([1.0, 2.0, 3.0, np.inf], np.float32)
    assert CALIBRATORS["minmax"]()(observed(raw), UNSIGNED) == (0.0, 3.0)
    huge = np.array([1.0, 2.0, 3.0, 3e38], np.float32)
    lo, hi = CALIBRATORS["minmax"]()(observed(huge).within((-1e30, 1e30), "drop"), UNSIGNED)
    assert (lo, hi) == (0.0, pytest.approx(3.0, rel=2**-8))


def test_a_range_is_judged_as_it_will_be_trimmed() -> None:
    """Of a tensor that only a swish reads, what lies left of -8 needs no codes: the
    loss must not pay for it."""
    from npuflow.hw.target import Numerics
    from npuflow.ir.graph import Graph
    from npuflow.ir.op import OPS, Node
    from npuflow.ir.types import TensorType, Value
    from npuflow.quantise.config import Quantize
    from npuflow.statistics.observe import Counter
    from npuflow.statistics.statistics import merged
    from npuflow.tune.ranges.thresholds import Calibrate, thresholds

    rng = np.random.default_rng(5)
    x = np.concatenate([rng.normal(0, 1.5, 4000), rng.uniform(-60, -9, 1000)]).astype(np.float32)
    y = (x / (1 + np.exp(-x))).astype(np.float32)
    kind = TensorType((5000,))
    graph = Graph(
        ("x",), ("y",), (Node(OPS["silu"](), ("x",), ("y",), ("swish",)),), {v: Value(v, kind) for v in "xy"}
    )
    counter = Counter(("x", "y"))
    statistics = merged([("0", counter.observe([x, y]))])
    numerics = Numerics()
    plain, trimmed = Calibrate(method="mse"), Calibrate(method="mse", as_trimmed=True)
    blind = thresholds(graph, statistics, plain, Quantize(), numerics).ranges["x"]
    seeing = thresholds(graph, statistics, trimmed, Quantize(), numerics, lambda i: True).ranges["x"]
    assert blind[0] < -12 and -12 < seeing[0] < -4
    assert seeing[1] >= blind[1] - 1e-6
