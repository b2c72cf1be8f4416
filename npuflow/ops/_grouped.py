"""Products with weights that have scales by groups of input channels: parameters, the specification, operands
and commands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.groups import group_bounds, settled_groups
from npuflow.ir.lowering import TileView
from npuflow.ir.op import OpContext
from npuflow.ir.space import Axis, DimMap, Operand
from npuflow.ir.types import Array, GroupedType, IntArray
from npuflow.ops._requant import bias_shift, clamps, prove, requant_params
from npuflow.ops._windows import exact

WIDE = 63  # bits of a sum of scaled groups, half a code of rounding included


def grouped(site: OpContext, weight: int = 1) -> bool:
    """Whether the weight has scales by groups that the sums of these are multiplied by."""
    value = site.inputs[weight]
    quant = None if value is None else value.quant
    return quant is not None and quant.group is not None and not isinstance(quant, GroupedType)


def group_params(site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
    """`scales` [groups, channels] of the sums, `group_zeros` where the weight has several zero points, and
    REQUANT's parameters."""
    codes, weight, x = site.consts[1], site.quant(1), site.quant(0)
    assert codes is not None
    low, high = group_bounds(site.op, codes, weight, x)
    bias = site.consts[2] if site.present(2) else None
    what = f"a group of {weight.group} input channels"
    prove(low, high, site.group_bits(numerics), what)
    if weight.sub_bits is None:
        m, n = settled_groups(site, numerics)
        params: dict[str, int | Array] = {"multiplier": 1, "shift": n, **clamps(site, numerics)}
        if bias is not None:
            params["bias_shift"] = 0
        lowest, highest = _sums(low, high, m.astype(object), bias, 0)
        prove(lowest, highest, WIDE, "scaled groups")
        scales = m.astype(np.uint32)
    else:
        own = weight.channel_scale(len(low))
        ratio = site.op.gain() * x.scale[0] * own / site.out_quant.scale[0]
        params = dict(requant_params(site, ratio, numerics))
        if bias is not None:
            unit = site.op.gain() * x.scale[0] * own / site.op.bias_factor()
            params["bias_shift"] = bias_shift(site.quant(2), unit)
        steps = np.rint(np.reshape(weight.scale, (len(low), -1)) / own[:, None]).astype(np.int64)
        lowest, highest = _sums(low, high, steps.astype(object), bias, int(params.get("bias_shift", 0)))
        prove(lowest, highest, site.accumulator_bits(numerics), "scaled groups")
        scales = steps.astype(np.uint8)
    params["scales"] = np.ascontiguousarray(scales.T)
    if len(weight.zero_point) == 1:
        return {**params, "w_zero": weight.zero_point[0]}
    zeros = np.array(weight.zero_point, np.int32).reshape(len(low), -1)
    return {**params, "group_zeros": np.ascontiguousarray(zeros.T)}


def _sums(low: IntArray, high: IntArray, m: Array, bias: IntArray | None, shift: int) -> tuple[Array, Array]:
    """What any part of a channel's sum can be, with its bias and without."""
    lowest, highest = (low * m).sum(1), (high * m).sum(1)
    if bias is None:
        return lowest, highest
    b = bias.astype(object) << shift
    return np.minimum(lowest, lowest + b), np.maximum(highest, highest + b)


def group_sums(
    site: OpContext, x: IntArray, weight: IntArray, products: Callable[[IntArray, IntArray], Array],
    channel: int,
) -> IntArray:
    """The specification of the scaled sums: `products` of every group, whose channels are dimension
    `channel`, times its scales. Operands are less their zero points."""
    op = site.op
    x_axis, w_axis = op.group_axis(site, 0), op.group_axis(site, 1)
    size, scales = site.quant(1).group, site.array("scales").astype(np.int64)
    assert x_axis is not None and w_axis is not None and size is not None
    total: IntArray | None = None
    for g, row in enumerate(scales):
        start, stop = g * size, min((g + 1) * size, weight.shape[w_axis])
        pair = _part(x, x_axis, start, stop), _part(weight, w_axis, start, stop)
        part = products(*exact(*pair, terms=pair[1].size // len(row)))
        along = [-1 if d == channel % part.ndim else 1 for d in range(part.ndim)]
        scaled = np.asarray(part).astype(np.int64) * row.reshape(along)
        total = scaled if total is None else total + scaled
    assert total is not None
    return total


def _part(array: IntArray, axis: int, start: int, stop: int) -> IntArray:
    return array[tuple(slice(start, stop) if d == axis else slice(None) for d in range(array.ndim))]


def sum_axis(site: OpContext, name: str, size: int) -> Axis:
    """The axis that products are summed over: splits fall between groups, and between those of sparse
    weights."""
    if not grouped(site):
        value = site.inputs[1]
        sparse = value.quant.sparse if value is not None and value.quant is not None else None
        return Axis(name, size, "sum") if sparse is None else Axis(name, size, "sum", sparse[1])
    group = site.quant(1).group
    assert group is not None
    return Axis(name, size, "sum", group)


def scale_operands(site: OpContext, inner: str, outer: str) -> tuple[Operand, ...]:
    """The operands of scales and zero points, by the axis that is summed over and by the one of the
    channels."""
    if "scales" not in site.params:
        return ()
    group = site.quant(1).group
    assert group is not None
    maps = DimMap(inner, 1, group), DimMap(outer)
    names = (name for name in ("scales", "group_zeros") if name in site.params)
    return tuple(Operand(name, tuple(site.array(name).shape), maps) for name in names)


def weight_fields(site: OpContext, tile: TileView, name: str) -> dict[str, object]:
    """What a command says of a weight: its zero point, `<name>_zero`, or the address of several,
    `<name>_zeros`; and where it scales its sums group by group, the groups and their scales."""
    given: dict[str, object] = {}
    if grouped(site):
        scales = tile.params["scales"]
        given = {"group": site.quant(1).group, "scales": scales.address, "scales_type": scales.dtype}
    for held in ("w_zeros", "group_zeros"):
        if held in site.params:
            return {**given, f"{name}_zeros": tile.params[held].address}
    return {**given, f"{name}_zero": site.param("w_zero")}
