"""Signal over noise has one definition: of small numbers, of none, and of what is no number."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from npuflow.checks.evaluate import decibels as evaluated
from npuflow.compare.comparison import Comparison
from npuflow.compare.difference import difference as compared
from npuflow.ir.noise import decibels, difference, noise_decibels
from npuflow.ir.types import Array
from npuflow.metrics.psnr import Psnr
from npuflow.metrics.sqnr import Sqnr
from npuflow.tune.error import noise
from npuflow.tune.improve import decibels as said
from npuflow.tune.judge import rating
from npuflow.tune.precision.ledger import _db

SEED = np.random.default_rng(2)
TRUTH = SEED.normal(size=(3, 50)).astype(np.float32)
MADE = (TRUTH + 0.01 * SEED.normal(size=TRUTH.shape)).astype(np.float32)


def definitions(truth: Array, made: Array) -> dict[str, float]:
    """Every place that tells decibels, on the same pair."""
    sums = Comparison()
    for a, b in zip(truth, made, strict=True):
        sums.add(a, b)
    level = sums.measured
    over = noise(list(truth), list(made))
    text, apart = said(over), compared("y", truth, made).sqnr
    return {
        "evaluation": evaluated(truth, made),
        "metric": Sqnr()({"y": made}, {"y": truth}, None)["sqnr_db"],
        "tensor": 200.0 if level is None else level,
        "rating": rating([list(truth)], [list(made)]).sqnr,
        "correction": 200.0 if text == "exact" else float(text.removesuffix(" dB")),
        "verdict": float(noise_decibels(np.array(over))),
        "ledger": _db(over),
        "difference": 200.0 if apart is None else apart,
    }


@pytest.mark.parametrize("factor", [1.0, 1e-20, 1e-30, 1e20])
def test_all_definitions_agree_whatever_the_size(factor: float) -> None:
    truth, made = (array * np.float32(factor) for array in (TRUTH, MADE))
    wide, off = truth.astype(np.float64), made.astype(np.float64) - truth
    wanted = 10 * np.log10((wide**2).sum() / (off**2).sum())
    assert wanted == pytest.approx(40, abs=1)
    for name, found in definitions(truth, made).items():
        assert found == pytest.approx(wanted, abs=0.01), name


def test_no_noise_no_signal_and_no_numbers() -> None:
    for name, found in definitions(TRUTH, TRUTH).items():
        assert found == 200.0, name
    for name, found in definitions(np.zeros_like(TRUTH), MADE).items():
        assert found == -200.0, name
    strange = TRUTH.copy()
    strange[0, 0] = nan
    for name, found in definitions(strange, MADE).items():
        if name != "difference":                           # which compares NaN with NaN
            assert found == pytest.approx(40, abs=1), name
    assert (decibels(1.0, nan), decibels(nan, 1.0), decibels(1.0, inf)) == (-200.0, -200.0, -200.0)
    assert decibels(1e-300, 1e-304) == pytest.approx(40)


def test_single_numbers_differ_as_arrays_do() -> None:
    """numpy's own scalars, which a sum over all of an array is."""
    for made in (np.float32(1.5), np.array(1.5), np.float64(1.5)):
        assert difference(made, np.float32(1.0)) == 0.5
    one = np.array([1.5, 2.0])
    assert difference(one, one.astype(np.float32)).tolist() == [0, 0] and one.tolist() == [1.5, 2.0]


def test_a_number_beside_none_is_a_difference() -> None:
    made = MADE.copy()
    made[0, 0] = nan
    assert compared("y", TRUTH, made).sqnr == -200.0
    assert Psnr(peak=1.0)({"y": made}, {"y": TRUTH}, None)["psnr_db"] < 0
