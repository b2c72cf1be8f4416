"""How far two sets of named tensors are apart: largest difference, cosine, SQNR, and
where they first differ."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.ir.noise import decibels, energy

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Difference:
    """One tensor in both: `sqnr` in dB with the first as the signal (inf: equal), `different` elements.

    `index`: the first element, in C order, that differs by more than the tolerance; its value on both
    `sides`; `codes`: integers of quantised tensors were compared, not the numbers that they stand for.
    """

    name: str
    elements: int
    different: int
    max_abs: float
    cosine: float
    sqnr: float
    note: str = ""
    codes: bool = False
    index: tuple[int, ...] | None = None
    sides: tuple[Any, Any] | None = None

    def diverges(self, tolerance: float) -> bool:
        return self.different > 0 and (self.max_abs > tolerance or bool(self.note))


def difference(
    name: str, a: Array, b: Array, *, tolerance: float = 0.0, codes: bool = False, zero: int = 0
) -> Difference:
    """How far two arrays of one name are apart; of codes, those above and below the code `zero` that stands
    for 0.
    """
    if a.shape != b.shape:
        return Difference(name, int(a.size), int(a.size), inf, 0.0, -inf, f"shapes {a.shape} and {b.shape}")
    if a.dtype.kind not in "iubf" or b.dtype.kind not in "iubf":
        wrong = int(np.count_nonzero(a != b))
        where, sqnr = _first(a != b, a, b), inf if not wrong else -inf
        return Difference(name, int(a.size), wrong, 0.0, float(not wrong), sqnr, "not numbers", False, *where)
    x, y = (v.astype(np.float64).reshape(-1) - zero for v in (a, b))
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    noise = np.nan_to_num(np.where(same, 0.0, x - y), nan=inf, posinf=inf, neginf=inf)
    signal, power = energy(x), float(np.dot(noise, noise))
    both = np.isfinite(x) & np.isfinite(y)
    norm = float(np.sqrt(energy(x[both])) * np.sqrt(energy(y[both])))
    cosine = 1.0 if same.all() else float(np.dot(x[both], y[both])) / norm if norm else 0.0
    sqnr = inf if power == 0 else -inf if not signal or not isfinite(power) else decibels(signal, power)
    largest = float(np.abs(noise).max(initial=0.0))
    far = ~same & ~(np.abs(noise) <= tolerance)
    where = _first(far.reshape(a.shape), a, b)
    wrong = int(np.count_nonzero(~same))
    return Difference(name, int(a.size), wrong, largest, cosine, sqnr, "", codes, *where)


def _first(wrong: Array, a: Array, b: Array) -> tuple[tuple[int, ...] | None, tuple[Any, Any] | None]:
    """The first element that is wrong, and what both sides hold there."""
    if not wrong.any():
        return None, None
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    return index, (a[index].item(), b[index].item())
