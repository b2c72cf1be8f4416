"""The operator contract, second part: how an operator becomes integers, or other numbers of few bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Numerics
from npuflow.ir.types import Array, IntArray, Span, WholeNumbers
from npuflow.ir.windows import Taps

# plain: not quantised (shapes); index: whole numbers, which are their own codes; table: has the type of the
# result, whose elements are its elements
Role = Literal["activation", "weight", "bias", "plain", "index", "table"]
S = TypeVar("S")  # a node in its place: `OpContext` of ir/op.py, which knows the operator


class Quantisable(Generic[S]):
    """What each input is to the quantiser, along which axes scales may differ, and the semantics in integers.
    `quantise`, `tune` and the reference ask this; an operator without it stays on the host."""

    shares_scale: ClassVar[bool] = False  # outputs and activation inputs must have one QuantType
    retypes: ClassVar[bool] = False       # a value in another type; the operand keeps its own
    whole_steps: ClassVar[bool] = False   # computes with the whole number next to 1 / scale of its codes
    sensitive: ClassVar[bool] = False     # a square, quotient, root, logarithm: first to get wide codes

    def role(self, index: int) -> Role:
        """What an input is to the quantiser. A constant "activation" gets a per-tensor range of its own."""
        return "activation"

    def channel_axis(self, site: S, index: int) -> int | None:
        """Axis of a weight along which scales may differ."""
        return None

    def group_axis(self, site: S, index: int) -> int | None:
        """Axis of an input, the activation or its constant weight, along which products are summed and groups
        of neighbours may have weight scales of their own; None: there are none."""
        return None

    def places(self, site: S) -> int:
        """At how many places an output is a sum of input columns times rows of a constant weight; else 0."""
        return 0

    def column_groups(self) -> int:
        """In how many groups the input's channels, and the weight's rows, fall."""
        return 1

    def columns(self, shape: tuple[int, ...], at: npt.NDArray[np.int64]) -> Taps:
        """Where an input of that shape holds what the rows of each group multiply at these places."""
        raise NotImplementedError

    def rows(self, weight: Array) -> Array:
        """A weight as [output channel, term of the sum]."""
        raise NotImplementedError

    def output_range(self, site: S) -> tuple[float, float] | None:
        """The exact range of the output when the function fixes it (Softmax: 0..1);
        then statistics are not asked."""
        return None

    def whole_numbers(self, site: S) -> Mapping[str, WholeNumbers]:
        """Inputs and outputs, by value id, that are whole numbers with codes equal to themselves."""
        return {}

    def whole_result(self, site: S, spans: Sequence[Span | None], output: int) -> Span | None:
        """The range of a result of whole numbers within `spans`; None: not whole, or of no known range."""
        return None

    def prepare(self, site: S, numerics: Numerics) -> dict[str, int | Array]:
        """Integer constants of the quantised node (multipliers, shifts, clamp bounds, tables), fixed once."""
        raise NotImplementedError

    def integer(
        self, site: S, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        """THE specification: exact integer semantics, plain numpy, slow and clear. Uses
        site.params and hw.numerics only."""
        raise NotImplementedError

    def block_axis(self, site: S, index: int, size: int) -> int | None:
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
