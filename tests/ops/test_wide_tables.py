"""Interpolated tables of 16-bit codes: as near to the function as their results show, or refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.base.errors import TargetError
from npuflow.hw.target import Numerics
from npuflow.ir.op import OPS, OpContext
from npuflow.ir.types import QuantType
from npuflow.ops._table import TableOp
from npuflow.testing.op import case, samples

SAMPLES = {s.op: s for n in OPS.names() for s in samples(n) if isinstance(s.op, TableOp)}
FUNCTIONS = sorted(SAMPLES, key=str)
JUMPS = ("Ceil", "Floor", "Mod", "Round", "Shrink", "ThresholdedRelu")
EVERY = np.arange(1 << 16, dtype=np.int64)


def _type(bits: int, lo: float, hi: float) -> QuantType:
    """Unsigned codes of a range around 0."""
    scale = (max(hi, 0.0) - min(lo, 0.0)) / ((1 << bits) - 1)
    return QuantType(bits, False, (scale,), (round(-min(lo, 0.0) / scale),))


def _farthest(op: TableOp, bits: int) -> int:
    """Codes of a result of `bits` that the table is off the function, of any code of its domain."""
    source = _type(16, op.domain_lo, op.domain_hi)
    x = source.scale[0] * (EVERY - source.zero_point[0])
    inside = (x >= op.domain_lo) & (x <= op.domain_hi)
    y = op.f(x[inside])
    result = _type(bits, float(y.min()), float(y.max()))
    one = case(SAMPLES[op])
    value, out = (replace(one.graph.values[v], quant=q) for v, q in (("i0", source), ("y0", result)))
    site = OpContext(one.node, (value,), (out,), (None,), {})
    site = replace(site, params=op.prepare(site, Numerics()))
    made = op.integer(site, [EVERY.astype(source.dtype)], Numerics())[0].astype(np.int64)[inside]
    codes = np.clip(np.rint(y / result.scale[0]) + result.zero_point[0], result.lo, result.hi)
    return int(np.abs(made - codes).max())


@pytest.mark.parametrize("op", FUNCTIONS, ids=str)
def test_results_of_8_bits_are_within_a_few_codes(op: TableOp) -> None:
    """Where the function is steepest a root may be off by as much as at 16 bits, in their codes."""
    try:
        assert _farthest(op, 8) <= max(op.loosest >> 8, 1)
    except TargetError as error:
        assert error.code == "NF-QUANT-016"


@pytest.mark.parametrize("name", JUMPS)
def test_no_table_interpolates_across_a_jump(name: str) -> None:
    """Between two entries it would give numbers that the function never has."""
    op = next(f for f in FUNCTIONS if f.onnx == name)
    for bits in (8, 16):
        with pytest.raises(TargetError) as found:
            _farthest(op, bits)
        assert found.value.code == "NF-QUANT-016"
