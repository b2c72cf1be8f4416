"""The operator contract: everything the compiler knows of an operator, stated once, in one file of ops/."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from npuflow.base.registry import Registry
from npuflow.hw.target import Numerics, Target
from npuflow.ir.floats import InFloats
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.moves import Move
from npuflow.ir.space import Space
from npuflow.ir.types import Array, IntArray, QuantType, Span, TensorType, Value, WholeNumbers
from npuflow.ir.windows import Taps

OPS = Registry("ops", "npuflow.ops")

Param = int | str | tuple[int, ...]   # an integer, integers, or the content digest of a constant array
Bound = float | tuple[float, ...]     # of a clip: of all, or per channel (dimension 1) of layers with weights
Weights = tuple[Array, Array | None]      # a weight and what is added to its products
# plain: not quantised (shapes); index: whole numbers, which are their own codes; table: has the type of the
# result, whose elements are its elements
Role = Literal["activation", "weight", "bias", "plain", "index", "table"]


@dataclass(frozen=True)
class Yes:
    """The target runs this node."""


@dataclass(frozen=True)
class No:
    """The target does not run this node; `reason` carries the numbers."""

    reason: str


@dataclass(frozen=True)
class OnnxCall:
    """An ONNX node with opset `version`: attributes as Python values (tensors as arrays), and per input its
    type and, when it is constant, its array. In `to_onnx` results, `inputs` lists graph inputs by position or
    constant arrays."""

    op_type: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    version: int = 0
    types: tuple[TensorType | None, ...] = ()
    consts: tuple[Array | None, ...] = ()
    # to_onnx only; None: the node's own inputs as they are
    inputs: tuple[int | Array | None, ...] | None = None
    # to_onnx only; what an operator that no runtime knows computes, as a function of ONNX's own in its text
    # form: "AbsDiff (a, b) => (y) { d = Sub(a, b) y = Abs(d) }"
    body: str = ""


@dataclass(frozen=True)
class Imported:
    """Result of `from_onnx`: the operator and which of the ONNX inputs stay graph inputs, in order."""

    op: Op
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class OpSample:
    """A case for the published suite: float inputs; `constant` lists input positions that are constants."""

    op: Op
    inputs: tuple[Array | None, ...]
    constant: tuple[int, ...] = ()
    lsb: int = 1                          # accepted distance of `integer` from the quantised float reference


@dataclass(frozen=True)
class Op(InFloats):
    """Base of every operator. Fields of a subclass are its attributes (named as in ONNX where ONNX has them);
    those by keyword alone are the compiler's own."""

    clip: tuple[Bound, Bound] | None = field(default=None, kw_only=True)  # fused Relu/Clip, in real units

    onnx: ClassVar[str] = ""              # ONNX operator type
    domain: ClassVar[str] = ""
    shares_scale: ClassVar[bool] = False  # outputs and activation inputs must have one QuantType
    fuses_clip: ClassVar[bool] = False    # a following Relu/Clip may become `clip`
    elementwise: ClassVar[bool] = False   # results depend on the elements at their place, with broadcasting
    unary: ClassVar[bool] = False         # a function of one number, applied to every element: `f`
    moves_data: ClassVar[bool] = False    # results are elements of the operands as they are, or a constant
    bounded: ClassVar[tuple[float, float] | None] = None     # what the function never leaves: not clipped
    sensitive: ClassVar[bool] = False     # a square, quotient, root, logarithm: first to get wide codes
    sums: ClassVar[bool] = False          # a sum or a difference of its two operands
    signs: ClassVar[bool] = False         # of its operand nothing counts but the sign
    hosted: ClassVar[bool] = False        # a node of the source format kept whole: no NPU runs it
    answers: ClassVar[Literal["", "argmax", "threshold"]] = ""  # what applications make of it as an output

    def respelled(self) -> bool:
        """Whether rules may spell the node in other operators."""
        return True

    # --- source format
    @classmethod
    def from_onnx(cls, call: OnnxCall) -> Imported | No:
        """The operator for an ONNX node, or why this file does not take it (then it runs on the host)."""
        known = {f.name for f in fields(cls) if not f.kw_only}
        extra = sorted(set(call.attributes) - known)
        if extra:
            return No(f"attribute {', '.join(extra)}")
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in call.attributes.items()}
        return Imported(cls(**plain), tuple(range(len(call.types))))

    def onnx_type(self) -> tuple[str, str]:
        """Domain and name of the ONNX operator that it is."""
        return self.domain, self.onnx

    def onnx_attributes(self) -> Mapping[str, Any]:
        """Attributes by their ONNX names."""
        return {f.name: getattr(self, f.name) for f in fields(self) if not f.kw_only}

    def to_onnx(self, site: Site) -> OnnxCall:
        """The ONNX node (newest supported opset) that computes `reference` without the clip."""
        return OnnxCall(self.onnx, self.onnx_attributes(), self.domain)

    # --- float semantics
    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        raise NotImplementedError

    def with_results(self, types: Sequence[TensorType]) -> Op | None:
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

    # --- quantisation
    def role(self, index: int) -> Role:
        """What an input is to the quantiser. A constant "activation" gets a per-tensor range of its own."""
        return "activation"

    def channel_axis(self, site: Site, index: int) -> int | None:
        """Axis of a weight along which scales may differ."""
        return None

    def group_axis(self, site: Site, index: int) -> int | None:
        """Axis of an input, the activation or its constant weight, along which products are summed and groups
        of neighbours may have weight scales of their own; None: there are none."""
        return None

    def places(self, site: Site) -> int:
        """At how many places an output is a sum of input columns times rows of a constant weight; else 0."""
        return 0

    def reduced(self, rank: int) -> tuple[int, ...] | None:
        """The dimensions of an input of that rank that are reduced; None: it is no reduction."""
        return None

    def tap_places(self, site: Site, places: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """Of operators with a window, per spatial dimension and tap: at how many of the places of the output
        the tap meets an element of the input, and neither padding nor an inserted zero. Products and
        comparisons beyond these are not useful work."""
        return ()

    def column_groups(self) -> int:
        """In how many groups the input's channels, and the weight's rows, fall."""
        return 1

    def columns(self, shape: tuple[int, ...], at: npt.NDArray[np.int64]) -> Taps:
        """Where an input of that shape holds what the rows of each group multiply at these places."""
        raise NotImplementedError

    def rows(self, weight: Array) -> Array:
        """A weight as [output channel, term of the sum]."""
        raise NotImplementedError

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

    def answer_axis(self, rank: int) -> int:
        """The dimension along which the largest element is the answer (see `answers`)."""
        return rank - 1

    def border(self, site: Site) -> tuple[tuple[int, ...], float] | No:
        """The constant border that it puts around its first input: widths before all dimensions, then behind
        them, and the number. No: the border is not constant, or depends on the input."""
        return (0,) * (2 * len(site.shape(0))), 0.0

    def with_border(self, widths: Sequence[int], value: float = 0.0) -> Self:
        """The operator with another constant border."""
        raise NotImplementedError

    def measures(self, site: Site) -> Mapping[str, int]:
        """Numbers that a target's limits may speak of, beside those of the shapes: windows, products."""
        return {}

    def output_range(self, site: Site) -> tuple[float, float] | None:
        """The exact range of the output when the function fixes it (Softmax: 0..1);
        then statistics are not asked."""
        return None

    def whole_numbers(self, site: Site) -> Mapping[str, WholeNumbers]:
        """Inputs and outputs, by value id, that are whole numbers with codes equal to themselves."""
        return {}

    def whole_result(self, site: Site, spans: Sequence[Span | None], output: int) -> Span | None:
        """The range of a result of whole numbers within `spans`; None: not whole, or of no known range."""
        return None

    def prepare(self, site: Site, numerics: Numerics) -> dict[str, int | Array]:
        """Integer constants of the quantised node (multipliers, shifts, clamp bounds, tables), fixed once."""
        raise NotImplementedError

    def integer(
        self, site: Site, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        """THE specification: exact integer semantics, plain numpy, slow and clear. Uses
        site.params and hw.numerics only."""
        raise NotImplementedError

    # --- the target
    def accepts(self, site: Site, target: Target) -> Yes | No:
        """Whether the target runs this (float) node, judged before calibration from
        types, constants and limits."""
        return No(f"{self.onnx or type(self).__name__} has no integer form")

    def space(self, site: Site, numerics: Numerics) -> Space | None:
        """Iteration space of the quantised node; None for operators that only move data (see `moves`)."""
        return None

    def local_space(self, site: Site) -> Space | None:
        """Iteration space of an operator with `moves` where `lower` copies in local memory; None: nowhere."""
        return None

    def moves(self, site: Site) -> tuple[Move, ...] | None:
        """Strided copies that are the whole operator. An empty tuple: the output is
        the input's bytes as they lie."""
        return None

    def lower(self, site: Site, tile: TileView, em: Emitter) -> None:
        """Commands of the compute queues for one tile. Called once per tile, `sum`
        axes innermost and in order."""
        raise NotImplementedError(f"{type(self).__name__}.lower")

    # --- the published suite
    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        return ()

    def with_(self, **changes: object) -> Self:
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Node:
    """One operator instance. `inputs` are value ids ("" for an absent optional input). `origin`
    keeps the source model's node names. `params` are the integer constants fixed at quantisation
    (see Op.prepare), sorted by name.
    """

    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    origin: tuple[str, ...] = ()
    params: tuple[tuple[str, Param], ...] | None = None   # None: a float node

    @property
    def name(self) -> str:
        """Name for messages: the source node's, else the first output's."""
        return self.origin[0] if self.origin else self.outputs[0]

    @property
    def is_integer(self) -> bool:
        return self.params is not None


@dataclass(frozen=True)
class Site:
    """One node in its place: values of inputs (None: absent), outputs; constants by input; integer params."""

    node: Node
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    consts: tuple[Array | None, ...]
    params: Mapping[str, int | Array]

    @property
    def op(self) -> Op:
        return self.node.op

    def present(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of an input that must be present."""
        value = self.inputs[index]
        assert value is not None, f"{self.node.name}: input {index} is absent"
        return value.type.shape

    def quant(self, index: int) -> QuantType:
        """Quantisation of an input that must be present and quantised."""
        value = self.inputs[index]
        assert value is not None and value.quant is not None, (
            f"{self.node.name}: input {index} is not quantised"
        )
        return value.quant

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.outputs[0].type.shape

    @property
    def out_quant(self) -> QuantType:
        quant = self.outputs[0].quant
        assert quant is not None, f"{self.node.name}: output is not quantised"
        return quant

    @property
    def number(self) -> str:
        """The float type that the node computes in; empty: integers."""
        return next((v.number for v in (*self.outputs, *self.inputs) if v is not None and v.number), "")

    def accumulator_bits(self, numerics: Numerics) -> int:
        """Of the node's sums: wide operands may have wider ones, and sums of scaled groups have 64."""
        types = [v.quant for v in self.inputs if v is not None]
        if any(q is not None and q.group is not None and q.sub_bits is None for q in types):
            return 64
        return self.group_bits(numerics)

    def group_bits(self, numerics: Numerics) -> int:
        """Bits of the sum of one group, before its scale."""
        widths = [
            v.quant.bits
            for i, v in enumerate(self.inputs)
            if v is not None and v.quant and self.op.role(i) != "bias"
        ]
        return numerics.accumulator(max(widths))

    def param(self, name: str) -> int:
        value = self.params[name]
        assert isinstance(value, int), f"{self.node.name}: parameter {name} is an array"
        return value

    def array(self, name: str) -> Array:
        value = self.params[name]
        assert not isinstance(value, int), f"{self.node.name}: parameter {name} is a number"
        return value


def bound_array(bound: Bound, rank: int) -> npt.NDArray[np.float64]:
    """A bound in the shape that meets a tensor of that rank."""
    real = np.asarray(bound, np.float64)
    return real.reshape([-1 if d == 1 else 1 for d in range(rank)]) if real.ndim else real


def need(condition: bool, reason: str) -> Yes | No:
    return Yes() if condition else No(reason)


def first_no(*answers: Yes | No) -> Yes | No:
    """The first refusal, else Yes."""
    return next((a for a in answers if isinstance(a, No)), Yes())
