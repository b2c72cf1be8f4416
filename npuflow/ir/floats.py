"""The operator contract in floats and blocks."""

from __future__ import annotations

from typing import Any, ClassVar, Self


class InFloats:
    """What an operator states of its nodes in the float types of a target. `site` is a Site of ir/op.py."""

    form: ClassVar[str] = ""
    """How it computes beside integers: file names in `npuflow/forms` end with it. Empty: not at all."""

    @property
    def lane(self) -> str:
        """The operation of the vector unit on floats that it is; empty: there is none."""
        return ""

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
