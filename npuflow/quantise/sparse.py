"""Weights whose zeros the target skips."""

from __future__ import annotations

from math import prod

from npuflow.hw.elements import sparse_packing
from npuflow.hw.target import Numerics
from npuflow.ir.op import Site
from npuflow.ir.sparsity import Pattern
from npuflow.ir.types import Array, QuantType


def sparse_type(site: Site, weight: int, codes: Array, quant: QuantType, numerics: Numerics) -> QuantType:
    """The type of a weight's codes, which says so where they have the zeros that the target skips: along the
    input channels, which lie one after another."""
    pattern, axis = Pattern.read(numerics.sparsity), site.op.group_axis(site, weight)
    if pattern is None or axis is None or quant.group is not None or any(quant.zero_point):
        return quant
    if prod(codes.shape[axis + 1 :]) > 1 or not pattern.holds(codes.reshape(-1, codes.shape[axis])):
        return quant
    one = (pattern.keep, pattern.of)
    width = min((b for b in numerics.weight_bits if b >= quant.bits), default=8)
    known = sparse_packing(width, quant.signed, one)
    return quant if known is None else quant.with_(sparse=one)
