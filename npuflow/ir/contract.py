"""The operator contract in its parts: real numbers, integers, how a target runs it, factors of constants.

`Op` of ir/op.py has all of them. A room asks one or two: their first sentences say which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from npuflow.hw.target import Numerics, Target
from npuflow.ir.answers import No, Yes
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.moves import Move
from npuflow.ir.space import IterationDomain
from npuflow.ir.types import Array, IntArray, Span, TensorType, WholeNumbers
from npuflow.ir.windows import Taps, Window

Bound = float | tuple[float, ...]     # of a clip: of all, or per channel (dimension 1) of layers with weights
Algebra = Literal[
    "", "sum", "difference", "product", "quotient", "root", "power", "mean", "clamp", "peak", "affine",
    "convolution", "matrices", "join", "border", "view", "resampling", "shares",
]
"""What an operator is to code that reasons about sums and scales, whatever its name. affine: rows times a
constant matrix, and a constant; matrices: a product of two; peak: the largest in a window; view: the same
elements in the same order; shares: what exponentials are of their sum."""
# plain: not quantised (shapes); index: whole numbers, which are their own codes; table: has the type of the
# result, whose elements are its elements
Role = Literal["activation", "weight", "bias", "plain", "index", "table"]
Weights = tuple[Array, Array | None]      # a weight and what is added to its products
S = TypeVar("S")  # a node in its place: `OpContext` of ir/op.py, which knows the operator


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


class Lowerable(Generic[S]):
    """Whether the target takes a node, the axes that tiles cut, and the commands of a tile. `place`,
    `schedule`, `search` and `program` ask this. Those of floats and blocks are in `npuflow/forms`."""

    onnx: ClassVar[str]
    def forms(self) -> Mapping[str, Any]:
        """How it computes beside integers: classes of `npuflow/forms` by arithmetic (`Arithmetic`)."""
        return {}

    @property
    def lane(self) -> str:
        """The operation of the vector unit on floats that it is; empty: there is none. Of two operands also
        several, one after the other ("sub abs"): the first on both, those behind it on its result."""
        return ""

    def accepts(self, site: S, target: Target) -> Yes | No:
        """Whether the target runs this (float) node, judged before calibration from
        types, constants and limits."""
        return No(f"{self.onnx or type(self).__name__} has no integer form")

    def measures(self, site: S) -> Mapping[str, int]:
        """Numbers that a target's limits may speak of, beside those of the shapes: windows, products."""
        return {}

    def tap_places(self, site: S, places: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """Of operators with a window, per spatial dimension and tap: at how many of the places of the output
        the tap meets an element of the input, and neither padding nor an inserted zero. Products and
        comparisons beyond these are not useful work."""
        return ()

    def space(self, site: S, numerics: Numerics) -> IterationDomain | None:
        """Iteration space of the quantised node; None for operators that only move data (see `moves`)."""
        return None

    def local_space(self, site: S) -> IterationDomain | None:
        """Iteration space of an operator with `moves` where `lower` copies in local memory; None: nowhere."""
        return None

    def moves(self, site: S) -> tuple[Move, ...] | None:
        """Strided copies that are the whole operator. An empty tuple: the output is
        the input's bytes as they lie."""
        return None

    def reading_cache(self, place: int, exchanged: bool) -> Self | None:
        """The operator as a plan has it where an input is a cache whose rows a run may read in part, so that
        no tile divides them; `exchanged`: its last two dimensions lie so. None: it cannot."""
        return None

    def copies(self, site: S) -> bool:
        """Whether the quantised node gives the codes that it reads: a program could do without."""
        return False

    def lower(self, site: S, tile: TileView, em: Emitter) -> None:
        """Commands of the compute queues for one tile. Called once per tile, `sum`
        axes innermost and in order."""
        raise NotImplementedError(f"{type(self).__name__}.lower")


class Scalable:
    """Products with a constant weight: rules, equalisation and the folding of pixels ask this. The default is
    an operator without a weight."""

    onnx: ClassVar[str]

    def input_channels(self) -> int:
        """The dimension of the input over which products with a constant weight are summed."""
        return 1

    def gain(self) -> float:
        """Real factor on the products with the weight."""
        return 1.0

    def bias_factor(self) -> float:
        """Real factor on the bias."""
        return 1.0

    def of_scaled(self, weight: Array, bias: Array | None, scale: Array, shift: Array) -> Weights | No:
        """Weight and bias with which it computes of x what these compute of scale * x + shift, by input
        channel, in float64; a border is left out of account."""
        return No(f"{self.onnx or type(self).__name__} has no constant weight")

    def then_scaled(self, weight: Array, bias: Array | None, scale: Array, shift: Array) -> Weights | No:
        """Weight and bias that compute scale * y + shift of its result y, by output channel, in float64, with
        a factor of 1 on the bias."""
        return No(f"{self.onnx or type(self).__name__} has no constant weight")

    def unit_bias(self) -> Self:
        """The operator with a factor of 1 on its bias."""
        return self

    def unit_gain(self) -> Self:
        """The operator with a factor of 1 on its products."""
        return self
