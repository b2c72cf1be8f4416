"""Turns codes of activations into others that have a scale for every index of one dimension.

Caches have such codes, with a scale for every head."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from npuflow.ir.lowering import Buffer, TileView
from npuflow.ir.op import OpContext


def steps_of(site: OpContext) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The scales of the first operand and of the result: one, or one for each index."""
    return np.asarray(site.quant(0).scale, np.float64), np.asarray(site.out_quant.scale, np.float64)


def axis_of(site: OpContext) -> int | None:
    """The dimension along which the operand or the result has scales of its own."""
    return site.out_quant.axis if site.out_quant.axis is not None else site.quant(0).axis


def along(site: OpContext) -> list[int]:
    """The shape in which one number for each index meets the result."""
    return [-1 if d == axis_of(site) else 1 for d in range(len(site.out_shape))]


def places(site: OpContext, tile: TileView, name: str) -> Iterator[tuple[Buffer, Buffer, int | None]]:
    """Parts of a tile of a point by point operator that one command computes, in four dimensions or fewer,
    and the index that has their number in the parameter `name`; None where all have one."""
    x, y, axis = tile.input(0), tile.outputs[0], axis_of(site)
    if name not in site.params or axis is None:
        for one, other in zip(x.quads(), y.quads(), strict=True):
            yield one, other, None
        return
    for at in range(y.extent[axis]):
        index = y.box[axis][0] + at
        for one, other in zip(x.part({axis: at}).quads(), y.part({axis: at}).quads(), strict=True):
            yield one, other, index
