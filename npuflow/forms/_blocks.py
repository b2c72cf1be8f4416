"""Products with weights in blocks that share an exponent: parameters, the specification, operands.

Blocks run along the axis that is summed. The weight lies in memory block by block, as the parameter
`blocks`; the activations are bfloat16 in memory and, where the type has integers as elements, are converted
to blocks of the same type as the array reads them. So are both operands of a product of two activations. A
block is a chunk of the sum (see `hw.floats`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from npuflow.forms._products import ProductForm
from npuflow.forms._rounded import Real
from npuflow.hw import blocks
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.target import Numerics
from npuflow.ir.forms import block_type
from npuflow.ir.op import OpContext
from npuflow.ir.space import DimMap, IterationDomain, Operand
from npuflow.ir.types import Array


class InBlocks(ProductForm):
    """What blocks change in a product of floats."""

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        """The weight as it lies in memory."""
        found, codes = super().prepare(site, numerics), site.consts[1] if len(site.consts) > 1 else None
        axis = site.quant(1).group_axis
        if codes is None or axis is None:
            return found
        return {**found, "blocks": blocks.packed(codes, block_type(site), axis)}

    def chunk(self, site: OpContext, numerics: Numerics) -> int:
        return blocks.block_of(ELEMENTS[block_type(site)]).size

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain | None:
        """With a weight as the parameter `blocks`."""
        space = super().space(site, numerics)
        weight = space.inputs[1] if space is not None else None
        if space is None or weight is None or site.consts[1] is None:
            return space
        axis, size = site.quant(1).group_axis, self.chunk(site, numerics)
        maps = (*(replace(m, den=size) if d == axis else m for d, m in enumerate(weight.maps)), DimMap())
        held = Operand("blocks", tuple(site.array("blocks").shape), maps)
        inputs = tuple(None if i == 1 else operand for i, operand in enumerate(space.inputs))
        return replace(space, inputs=inputs, params=(held, *space.params))

    def sides(
        self, site: OpContext, x: Real, x_axis: int, weight: Real, w_axis: int, groups: int = 1
    ) -> tuple[Real, Real]:
        """Activations in blocks, too, where the type says so, and the axes that are summed padded with zeros
        to whole blocks."""
        name = block_type(site)
        shared = blocks.block_of(ELEMENTS[name])
        held = blocks.rounded(weight, name, w_axis) if site.op.pair_type() else weight
        right = _padded(held, shared.size, w_axis)
        if groups > 1:
            head, tail = x.shape[:x_axis], x.shape[x_axis + 1 :]
            apart = self.sides(site, x.reshape(*head, groups, -1, *tail), x_axis + 1, weight, w_axis)[0]
            return apart.reshape(*head, -1, *tail), right
        value = blocks.rounded(x, name, x_axis) if shared.both else x
        return _padded(value, shared.size, x_axis), right


def _padded(value: Real, size: int, axis: int) -> Real:
    more = [(0, -value.shape[axis] % size if d == axis % value.ndim else 0) for d in range(value.ndim)]
    return np.pad(value, more)
