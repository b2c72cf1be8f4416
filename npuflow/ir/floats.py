"""The operator contract in floats: the counterparts of `prepare`, `integer`, `space` and `lower` of an
operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.space import Space
from npuflow.ir.types import Array

if TYPE_CHECKING:
    from npuflow.ir.op import Site


class InFloats:
    """What an operator states of its nodes in the float types of a target. Arrays are patterns of bits."""

    floats: ClassVar[bool] = False        # it has such a form

    def unit_gain(self) -> Self:
        """The operator with a factor of 1 on its products."""
        return self

    def float_prepare(self, site: Site, numerics: Numerics) -> dict[str, int | Array]:
        """Constants of a node in floats: bounds, tables."""
        return {}

    def float_compute(
        self, site: Site, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        """THE specification in floats: exact to the bit, plain numpy, slow and clear. `npuflow.hw.floats` is
        the arithmetic."""
        raise NotImplementedError

    def float_space(self, site: Site, numerics: Numerics) -> Space | None:
        """Iteration space; None for operators that only move data."""
        return site.op.space(site, numerics)

    def float_lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        """Commands of the compute queues for one tile."""
        raise NotImplementedError(f"{type(self).__name__}.float_lower")
