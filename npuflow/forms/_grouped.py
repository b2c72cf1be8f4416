"""Products with weights in groups that have float16 scales: parameters, operands, fields of commands.

The weight lies in memory as the parameter `blocks` [channels, groups, bytes], column after column, so
that a tile of channels is one run of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import lcm

import numpy as np
import numpy.typing as npt

from npuflow.hw.grouped import WeightGroups
from npuflow.ir.forms import groups_type
from npuflow.ir.lowering import TileView
from npuflow.ir.op import OpContext
from npuflow.ir.space import DimMap, IterationDomain, Operand
from npuflow.ir.types import Array, GroupedType


def type_of(site: OpContext) -> GroupedType:
    found = groups_type(site)
    assert found is not None
    return found


def weight_of(site: OpContext) -> tuple[WeightGroups, Array]:
    """What the codes of the weight stand for, and the codes [channels, terms]."""
    kind, codes = type_of(site), site.consts[1]
    assert codes is not None
    return kind.groups(codes.shape), kind.by_channel(codes)


def matrix(site: OpContext, rows: Array) -> Array:
    """[channels, terms] as the weight has them."""
    return type_of(site).by_channel(rows)


def packed(site: OpContext) -> npt.NDArray[np.uint8]:
    groups, codes = weight_of(site)
    return groups.packed(codes)


def in_groups(space: IterationDomain | None, site: OpContext, multiple: int = 1) -> IterationDomain | None:
    """The space of a product with the weight as the parameter `blocks`; tiles of the axis that is summed end
    between groups, and between `multiple` terms."""
    size = type_of(site).group
    assert size is not None
    if space is None:
        return None
    whole = lcm(size, multiple)
    axes = tuple(replace(a, multiple=whole) if a.kind == "sum" else a for a in space.axes)
    maps = DimMap("n"), DimMap("k", den=size), DimMap()
    held = Operand("blocks", tuple(site.array("blocks").shape), maps)
    inputs = tuple(None if i == 1 else operand for i, operand in enumerate(space.inputs))
    return replace(space, axes=axes, inputs=inputs, params=(held, *space.params))


def fields(site: OpContext, given: Mapping[str, object]) -> dict[str, object]:
    """The fields of a command from those that products of matrices share."""
    kind = type_of(site)
    offset = "zero" if kind.zeros else "minimum" if kind.minima else "none"
    own = {
        "b_type": f"{'' if kind.signed else 'u'}int{kind.bits}",
        "zero": 0 if offset != "none" else kind.zero_point[0],
        "group": kind.group,
        "offset": offset,
    }
    return {**{name: value for name, value in given.items() if name != "b_strides"}, **own}


def blocks_address(tile: TileView) -> int:
    return tile.params["blocks"].address
