"""Finds the part of a table's input range outside of which its function stands still."""

from __future__ import annotations

from npuflow.hw.elements import wide
from npuflow.ir.op import OpContext
from npuflow.ir.types import span
from npuflow.quantise.scales import Range, trimmed

MOST = 0.5                                # of the range, that the part has at most: else codes gain little
TIMES = 8                                 # the range is probed, each time finer


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
