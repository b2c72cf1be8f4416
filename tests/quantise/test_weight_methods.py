"""Ranges of weights against computations row by row."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.calibrators import CALIBRATORS, Exact, Grid
from npuflow.hw.target import Numerics
from npuflow.ir.codes import encode
from npuflow.ir.types import QuantType
from npuflow.quantise.config import Weights
from npuflow.quantise.types import weight_type


def rows() -> np.ndarray:
    rng = np.random.default_rng(2)
    found = rng.laplace(0, 1, (12, 400)) * np.geomspace(0.01, 10, 12)[:, None]
    found[3, 7] = 50.0
    found[5] = np.abs(found[5])
    found[6] = 0.0
    return found


def loss(row: np.ndarray, lo: float, hi: float, first: int, last: int) -> float:
    step = max(hi / last, lo / first) or 1.0
    return float(((np.clip(np.rint(row / step), first, last) * step - row) ** 2).sum())


@pytest.mark.parametrize("bits", [4, 8])
def test_mse_row_by_row(bits) -> None:
    first, last = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    lo, hi = CALIBRATORS["mse"]().rows(rows(), Grid(bits, True, True))
    for row, a, b in zip(rows(), lo, hi, strict=True):
        low, high = min(row.min(), 0.0), max(row.max(), 0.0)
        best = min(loss(row, low * s, high * s, first, last) for s in np.linspace(0.2, 1, 161))
        assert loss(row, a, b, first, last) <= 1.05 * best + 1e-12


@pytest.mark.parametrize("percentile", [90.0, 99.0, 100.0])
def test_percentile_row_by_row(percentile) -> None:
    lo, hi = CALIBRATORS["percentile"](percentile).rows(rows(), Grid(8, True, True))
    for row, a, b in zip(rows(), lo, hi, strict=True):
        wanted = np.sort(np.abs(row))[max(int(np.ceil(percentile / 100 * row.size)) - 1, 0)]
        assert max(-a, b) == pytest.approx(wanted)


def test_octav_row_by_row() -> None:
    lo, hi = CALIBRATORS["octav"]().rows(rows(), Grid(4, True, True))
    for row, a, b in zip(rows(), lo, hi, strict=True):
        size = np.abs(row)
        s = size[size > 0].mean() if size.any() else 0.0
        for _ in range(20 if s else 0):
            over = size > s
            s = size[over].sum() / (((size > 0) & ~over).sum() / (3 * 15**2) + over.sum())
        assert max(-a, b) == pytest.approx(min(s, size.max()))


@pytest.mark.parametrize("per", ["channel", "tensor"])
def test_four_bits_lose_less_by_mse(per) -> None:
    array = rows().astype(np.float32)

    def error(method: str) -> float:
        kind: QuantType = weight_type(array, 0, Weights(bits=4, per=per, method=method), Numerics())  # type: ignore[arg-type]
        scale = np.array(kind.scale).reshape(-1, 1)
        return float(((encode(array, kind) * scale - array) ** 2).sum())

    assert error("mse") < 0.8 * error("minmax")


@pytest.mark.parametrize("name", sorted(CALIBRATORS.names()))
def test_every_method_gives_ranges_of_rows_within_their_extrema(name: str) -> None:
    found = rows()
    lo, hi = CALIBRATORS[name]().rows(found, Grid(4, True, True))
    assert np.all(lo >= np.minimum(found.min(axis=1), 0.0)) and np.all(lo <= 0.0)
    assert np.all(hi <= np.maximum(found.max(axis=1), 0.0)) and np.all(hi >= 0.0) and lo[6] == hi[6] == 0.0
    assert max(-lo[3], hi[3]) > 0.0


@pytest.mark.parametrize("absolute", [False, True])
def test_statistics_of_an_array_known_in_full(absolute: bool) -> None:
    row = rows()[3]
    exact = Exact(row)
    assert (exact.lo, exact.hi, exact.count) == (row.min(), row.max(), row.size)
    assert exact.moments.total.tolist() == pytest.approx([row.size, row.sum(), (row * row).sum()])
    values = np.sort(np.abs(row) if absolute else row)
    assert exact.quantile(0.75, absolute) == values[int(np.ceil(0.75 * row.size)) - 1]
    assert exact.histogram(7, *(values[[0, -1]]), absolute=absolute).sum() == row.size


def test_options_of_the_method_survive_an_override_of_the_width() -> None:
    table = Weights(method="percentile")
    table.__dict__["_options"] = {"method": CALIBRATORS["percentile"](90.0)}
    assert table.with_(bits=4).calibrator == CALIBRATORS["percentile"](90.0)
    assert table.with_(method="mse").calibrator == CALIBRATORS["mse"]()
