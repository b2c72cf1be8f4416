"""One tensor of a dump beside the golden one: codes with codes, real numbers with those of the codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuflow.checks.board.golden import Array
from npuflow.compare.difference import unequal
from npuflow.runner.feed import along, dequantize, quantize

HALF = 0.5  # of a code: how far a real number may lie from what its code stands for


@dataclass(frozen=True)
class Reals:
    """What a dump of real numbers holds: these numbers, those of the right codes, and the codes in between
    that they are, not rounded."""

    expected: Array
    found: Array
    codes: Array


@dataclass(frozen=True)
class Compared:
    """One sample of a tensor: right and found codes, and where they differ. `reals`: of a dump of real
    numbers, whose `found` codes are the nearest ones."""

    expected: Array
    found: Array
    wrong: Array
    reals: Reals | None = None


def compared(expected: Array, found: Array, quant: Mapping[str, Any] | None) -> Compared:
    """`expected`: codes [*shape]; `found`: codes of the same type, or real numbers (a float type)."""
    if found.dtype.kind != "f" or quant is None:
        return Compared(expected, found, unequal(expected, found))
    codes = quantize(found, quant)
    if "element" in quant:  # a float type: its numbers are exact in float32
        want = dequantize(expected, quant)
        same = (codes == expected) | (np.isnan(want) & np.isnan(found))
        return Compared(expected, codes, ~same, Reals(want, found, codes))
    want, scale, between = _affine(expected, found, quant)
    with np.errstate(invalid="ignore", over="ignore"):
        own = np.spacing(np.abs(want).astype(found.dtype)).astype(np.float64) / 2  # the dump's own rounding
        near = np.abs(found.astype(np.float64) - want) <= np.maximum(HALF * scale * (1 + 1e-6), own)
    return Compared(expected, codes, ~near, Reals(want, found, between))


def _affine(expected: Array, found: Array, quant: Mapping[str, Any]) -> tuple[Array, Array, Array]:
    """What the right codes stand for, the scale, and found numbers in units of codes."""
    scale = along(quant, "scale", np.float64, expected.shape)
    zero = along(quant, "zero_point", np.int64, expected.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        return (expected.astype(np.int64) - zero) * scale, scale, found.astype(np.float64) / scale + zero
