"""Weights with a scale per group of input channels: bounds of group sums, and their multipliers.
The multipliers bring the sums of all groups to output codes with one rounding.

y = clamp(R((sum over g of acc_g * m_g + b) / 2^n) + z): acc_g is the sum of products of group g, m_g its
multiplier, b a 64-bit bias in 2^-n output codes. Of two-level scales m_g is a small integer times a number of
the channel, which is applied behind the sum.
"""

from __future__ import annotations

from math import log2

import numpy as np
import numpy.typing as npt

from npuflow.hw.numerics import group_multipliers
from npuflow.hw.target import Numerics
from npuflow.ir.op import Op, OpContext
from npuflow.ir.types import Array, IntArray, QuantType

Real = npt.NDArray[np.float64]


def group_of_terms(op: Op, weight: QuantType, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """[terms]: the group of every term of a row of the weight."""
    assert weight.group is not None and weight.group_axis is not None
    along = [-1 if d == weight.group_axis else 1 for d in range(len(shape))]
    index = (np.arange(shape[weight.group_axis]) // weight.group).reshape(along)
    return np.asarray(op.rows(np.broadcast_to(index, shape))[0])


def group_bounds(op: Op, codes: IntArray, weight: QuantType, x: QuantType) -> tuple[IntArray, IntArray]:
    """[channels, groups]: the lowest and the highest sum of every group over all codes of the input."""
    rows = op.rows(codes.astype(np.int64) - weight.spread(codes.shape)[1])
    groups = group_of_terms(op, weight, codes.shape)
    low, high = min(x.lo - x.zero_point[0], 0), max(x.hi - x.zero_point[0], 0)
    sums = [_sums(rows[:, groups == g]) for g in range(int(groups.max()) + 1)]
    above, below = (np.stack(ends, 1) for ends in zip(*sums, strict=True))
    return above * low + below * high, above * high + below * low


def _sums(part: IntArray) -> tuple[IntArray, IntArray]:
    """Of every row, what is positive and what is negative."""
    return np.maximum(part, 0).sum(1), np.minimum(part, 0).sum(1)


def ratios(op: Op, weight: QuantType, x: QuantType, y: QuantType, channels: int) -> Real:
    """[channels, groups]: real multipliers from the sums of groups to output codes."""
    scale = np.asarray(weight.scale, np.float64).reshape(channels, -1)
    return np.asarray(op.gain() * x.scale[0] * scale / y.scale[0])


def scaled_groups(
    op: Op, codes: IntArray, x: QuantType, weight: QuantType, y: QuantType, bias: Array, numerics: Numerics
) -> tuple[IntArray, int]:
    """m [channels, groups] and n for the real bias of every channel."""
    low, high = group_bounds(op, codes, weight, x)
    return group_multipliers(
        ratios(op, weight, x, y, len(low)), low, high, np.abs(bias) / y.scale[0], numerics
    )


def settled_groups(site: OpContext, numerics: Numerics) -> tuple[IntArray, int]:
    """The same of a quantised node, whose bias, if it has one, states n."""
    codes, weight, x, y = site.consts[1], site.quant(1), site.quant(0), site.out_quant
    assert codes is not None
    low, high = group_bounds(site.op, codes, weight, x)
    ratio = ratios(site.op, weight, x, y, len(low))
    if not site.present(2):
        return group_multipliers(ratio, low, high, 0.0, numerics)
    n = round(log2(y.scale[0] / (site.quant(2).scale[0] * site.op.bias_factor())))
    return np.rint(np.ldexp(ratio, n)).astype(np.int64), n
