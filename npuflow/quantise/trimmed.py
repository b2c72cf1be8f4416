"""Finds the part of a table's input range outside of which its function stands still."""

from __future__ import annotations

import numpy as np

from npuflow.hw.elements import wide
from npuflow.hw.numerics import quantize
from npuflow.ir.op import Op, OpContext
from npuflow.ir.types import QuantType, span

Range = tuple[float, float]
STEPS = 8192                              # where the range is probed
MOST = 0.5                                # of the range, that the part has at most: else codes gain little
TIMES = 8                                 # the range is probed, each time finer


def trimmed(op: Op, span: Range, out: QuantType) -> Range:
    """The part of the range outside of which the output code is that of the nearer end.
    SiLU at 8 bits: about -5 and up.

    Codes are compared at half steps, so that what is cut off differs by less than a
    quarter step of the output.
    """
    x = np.linspace(span[0], span[1], STEPS + 1)
    with np.errstate(all="ignore"):
        y = np.asarray(op.f(x), np.float64)
    if op.clip is not None:
        y = np.clip(y, *op.clip)
    lo, hi = 2 * (out.lo - out.zero_point[0]), 2 * (out.hi - out.zero_point[0])
    codes = quantize(y, out.scale[0] / 2, 0, lo, hi)
    moves = np.flatnonzero(codes[1:] != codes[:-1])
    if not moves.size:
        return span
    return float(x[moves[0]]), float(x[moves[-1] + 1])


def changing(site: OpContext) -> Range | None:
    """Where the result of a function of one number changes, of an input whose range it cannot say itself
    (what a loop carries); None where that is most of its range."""
    if not site.node.op.unary or not wide(site.quant(0).bits):
        return None
    whole = part = span(site.quant(0))
    for _ in range(TIMES):
        before, part = part, trimmed(site.node.op, part, site.out_quant)
        if part == before:
            break
    return part if part[1] - part[0] <= MOST * (whole[1] - whole[0]) else None
