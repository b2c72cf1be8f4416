"""The operator contract in floats: the counterparts of `prepare`, `integer`, `space` and `lower` of an
operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.space import Space
from npuflow.ir.types import Array


class InFloats:
    """What an operator states of its nodes in the float types of a target. Arrays are patterns of bits;
    `site` is a Site of ir/op.py."""

    floats: ClassVar[bool] = False  # it has such a form

    def float_table(self, number: str) -> int:
        """Bytes of a table that every tile needs whole in local memory, in a float type of the table of
        element types."""
        return 0

    def unit_gain(self) -> Self:
        """The operator with a factor of 1 on its products."""
        return self

    def block_axis(self, site: Any, index: int, size: int) -> int | None:
        """Axis of an input, the activation or its constant weight, along which blocks of `size` neighbours
        share an exponent; None: the operator does not compute in such blocks."""
        return None

    def in_pairs(self, element: str) -> Self:
        """The operator with both operands, activations, converted to blocks of a type as the array reads
        them; itself: it does not compute in such blocks."""
        return self

    def pair_type(self) -> str:
        """The block type that `in_pairs` was given; empty: none."""
        return ""

    def float_prepare(self, site: Any, numerics: Numerics) -> dict[str, int | Array]:
        """Constants of a node in floats: bounds, tables."""
        return {}

    def float_compute(
        self, site: Any, inputs: Sequence[Array | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        """THE specification in floats: exact to the bit, plain numpy, slow and clear. `npuflow.hw.floats` is
        the arithmetic."""
        raise NotImplementedError

    def float_space(self, site: Any, numerics: Numerics) -> Space | None:
        """Iteration space; None for operators that only move data."""
        raise NotImplementedError(f"{type(self).__name__}.float_space")

    def float_lower(self, site: Any, tile: TileView, em: Emitter) -> None:
        """Commands of the compute queues for one tile."""
        raise NotImplementedError(f"{type(self).__name__}.float_lower")
