"""The operator contract, first part: what an operator computes in real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from npuflow.ir.types import Array, TensorType
from npuflow.ir.windows import Window

Bound = float | tuple[float, ...]     # of a clip: of all, or per channel (dimension 1) of layers with weights
Algebra = Literal[
    "", "sum", "difference", "product", "quotient", "root", "power", "mean", "clamp", "peak", "affine",
    "convolution", "matrices", "join", "border", "view", "resampling", "shares",
]
"""What an operator is to code that reasons about sums and scales, whatever its name. affine: rows times a
constant matrix, and a constant; matrices: a product of two; peak: the largest in a window; view: the same
elements in the same order; shares: what exponentials are of their sum."""


@dataclass(frozen=True)
class FloatSemantics:
    """Shapes and values in floats. Front ends, rewriting, the reference and the search for ranges ask it."""

    clip: tuple[Bound, Bound] | None = field(default=None, kw_only=True)  # fused Relu/Clip, in real units

    algebra: ClassVar[Algebra] = ""
    fuses_clip: ClassVar[bool] = False    # a following Relu/Clip may become `clip`
    elementwise: ClassVar[bool] = False   # results depend on the elements at their place, with broadcasting
    unary: ClassVar[bool] = False         # a function of one number, applied to every element: `f`
    moves_data: ClassVar[bool] = False    # results are elements of the operands as they are, or a constant
    picks: ClassVar[bool] = False         # each result is an element of an operand, and the values say which
    bounded: ClassVar[tuple[float, float] | None] = None     # what the function never leaves: not clipped
    sums: ClassVar[bool] = False          # a sum or a difference of its two operands
    signs: ClassVar[bool] = False         # of its operand nothing counts but the sign
    answers: ClassVar[Literal["", "argmax", "threshold"]] = ""  # what applications make of it as an output

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        raise NotImplementedError

    def with_results(self, types: Sequence[TensorType]) -> Self | None:
        """The same with results of these types, where it holds their shape; None: operands decide."""
        return None

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        """Float semantics in plain numpy, without the clip (see `clipped`)."""
        raise NotImplementedError

    def f(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The function of a `unary` operator in float64."""
        raise NotImplementedError

    def clipped(self, *inputs: Array | None) -> tuple[Array, ...]:
        """`reference` with the fused clip applied."""
        outputs = self.reference(*inputs)
        if self.clip is None:
            return outputs
        lo, hi = (bound_array(c, outputs[0].ndim).astype(outputs[0].dtype) for c in self.clip)
        return tuple(np.minimum(np.maximum(o, lo), hi) for o in outputs)

    def windows(self, spatial: Sequence[int]) -> tuple[Window, ...]:
        """The windows that slide over an input of these spatial sizes, one a dimension; none: it has none."""
        return ()

    def reduced(self, rank: int) -> tuple[int, ...] | None:
        """The dimensions of an input of that rank that are reduced; None: it is no reduction."""
        return None

    def answer_axis(self, rank: int) -> int:
        """The dimension along which the largest element is the answer (see `answers`)."""
        return rank - 1


def bound_array(bound: Bound, rank: int) -> npt.NDArray[np.float64]:
    """A bound in the shape that meets a tensor of that rank."""
    real = np.asarray(bound, np.float64)
    return real.reshape([-1 if d == 1 else 1 for d in range(rank)]) if real.ndim else real
