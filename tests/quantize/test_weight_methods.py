"""Ranges of weights against computations row by row."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.engine.calibrate.weights import ends
from npuflow.engine.quantize.config import Weights
from npuflow.engine.quantize.types import encode, weight_type
from npuflow.hw.target import Numerics
from npuflow.ir.types import QuantType


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
    lo, hi = ends(rows(), "mse", 99.99, (first, last), True)
    for row, a, b in zip(rows(), lo, hi, strict=True):
        low, high = min(row.min(), 0.0), max(row.max(), 0.0)
        best = min(loss(row, low * s, high * s, first, last) for s in np.linspace(0.2, 1, 161))
        assert loss(row, a, b, first, last) <= 1.05 * best + 1e-12


@pytest.mark.parametrize("percentile", [90.0, 99.0, 100.0])
def test_percentile_row_by_row(percentile) -> None:
    lo, hi = ends(rows(), "percentile", percentile, (-128, 127), True)
    for row, a, b in zip(rows(), lo, hi, strict=True):
        wanted = np.sort(np.abs(row))[max(int(np.ceil(percentile / 100 * row.size)) - 1, 0)]
        assert max(-a, b) == pytest.approx(wanted)


def test_octav_row_by_row() -> None:
    lo, hi = ends(rows(), "octav", 99.99, (-8, 7), True)
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
