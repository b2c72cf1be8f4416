"""How far two sets of named tensors are apart: largest difference, cosine, SQNR, and where they first differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, log10
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Difference:
    """One tensor in both: `sqnr` in dB with the first as the signal (inf: equal), `different` elements."""

    name: str
    elements: int
    different: int
    max_abs: float
    cosine: float
    sqnr: float
    note: str = ""


def differences(first: Mapping[str, Array], second: Mapping[str, Array]) -> tuple[Difference, ...]:
    """Every tensor that both have, in the order of the first."""
    return tuple(_difference(name, a, second[name]) for name, a in first.items() if name in second)


def _difference(name: str, a: Array, b: Array) -> Difference:
    if a.shape != b.shape:
        return Difference(name, int(a.size), int(a.size), inf, 0.0, -inf, f"shapes {a.shape} and {b.shape}")
    if a.dtype.kind not in "iubf" or b.dtype.kind not in "iubf":
        wrong = int(np.count_nonzero(a != b))
        return Difference(name, int(a.size), wrong, 0.0, float(not wrong), inf if not wrong else -inf, "not numbers")
    x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    noise = np.where(same, 0.0, x - y)
    signal, power = float(np.dot(x, x)), float(np.dot(noise, noise))
    norm = float(np.sqrt(signal) * np.sqrt(np.dot(y, y)))
    cosine = 1.0 if same.all() else float(np.dot(x, y)) / norm if norm else 0.0
    sqnr = inf if power == 0 else -inf if signal == 0 else 10 * log10(signal / power)
    largest = float(np.abs(noise).max(initial=0.0))
    return Difference(name, int(a.size), int(np.count_nonzero(~same)), largest, cosine, sqnr)
