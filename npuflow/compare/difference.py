"""Two arrays of one name, element by element: where they differ, by how much, and which element is first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from npuflow.compare.comparison import Comparison
from npuflow.ir.noise import EXACT
from npuflow.ir.types import Array

NUMBERS = "iubf"                          # kinds of types that hold numbers


@dataclass(frozen=True)
class Difference:
    """One tensor in both, the first being the right one: `different` elements, SQNR in dB (None: equal).

    `index`: the first element, in C order, that differs by more than the tolerance; its value on both
    `sides`; `codes`: integers of quantised tensors were compared, not the numbers that they stand for.
    `peak`: the largest finite magnitude of the first; `strange`: elements that are finite in one only.
    """

    name: str
    elements: int
    different: int
    max_abs: float
    cosine: float
    sqnr: float | None
    note: str = ""
    codes: bool = False
    index: tuple[int, ...] | None = None
    sides: tuple[Any, Any] | None = None
    peak: float = 0.0
    strange: int = 0

    def diverges(self, tolerance: float) -> bool:
        return self.different > 0 and (self.max_abs > tolerance or bool(self.note))


def unequal(want: Array, found: Array) -> Array:
    """[*shape], bool: elements of other values, whatever the types; NaN equals NaN. All of them where the
    shapes differ."""
    if want.shape != found.shape:
        return np.ones(want.shape, bool)
    wrong: Array = want != found
    return wrong if want.dtype.kind in "iub" else wrong & ((want == want) | (found == found))


def first(wrong: Array) -> tuple[int, ...] | None:
    """The first element, in C order, of which this is true."""
    if not wrong.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))


def difference(
    name: str, a: Array, b: Array, *, tolerance: float = 0.0, codes: bool = False, zero: int = 0
) -> Difference:
    """How far two arrays of one name are apart; of codes, those above and below the code `zero` that stands
    for 0.
    """
    if a.shape != b.shape:
        note = f"shapes {a.shape} and {b.shape}"
        return Difference(name, int(a.size), max(int(a.size), 1), inf, 0.0, -EXACT, note)
    if a.dtype.kind not in NUMBERS or b.dtype.kind not in NUMBERS:
        apart = a != b
        wrong = int(np.count_nonzero(apart))
        sqnr, where = -EXACT if wrong else None, first(apart)
        return Difference(
            name, int(a.size), wrong, 0.0, float(not wrong), sqnr, "not numbers", False, where,
            _sides(where, a, b),
        )
    x, y = (v.astype(np.float64) - zero for v in (a, b))
    apart = unequal(x, y)
    wrong = int(np.count_nonzero(apart))
    with np.errstate(invalid="ignore"):
        far = np.nan_to_num(np.where(apart, np.abs(x - y), 0.0), nan=inf, posinf=inf)
    where = first(apart & ~(far <= tolerance))
    finite = np.isfinite(x)
    strange = int(np.count_nonzero(apart & ~(finite & np.isfinite(y))))
    sums = Comparison()
    sums.add(x, y)
    return Difference(
        name,
        int(a.size),
        wrong,
        float(far.max(initial=0.0)),
        sums.cosine if wrong else 1.0,
        -EXACT if strange else sums.decibels if wrong else None,
        "",
        codes,
        where,
        _sides(where, a, b),
        float(np.abs(x[finite]).max(initial=0.0)),
        strange,
    )


def _sides(index: tuple[int, ...] | None, a: Array, b: Array) -> tuple[Any, Any] | None:
    return None if index is None else (a[index].item(), b[index].item())


def first_prefix(count: int, wrong: Callable[[int], bool]) -> int:
    """The length of a prefix that is wrong while the one shorter by 1 is right, found by bisection: that of
    length 0 is right and that of `count` is wrong, both without asking."""
    right, found = 0, count
    while found - right > 1:
        middle = (right + found) // 2
        if wrong(middle):
            found = middle
        else:
            right = middle
    return found
