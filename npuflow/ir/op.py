"""The operator contract: everything the compiler knows of an operator, stated once, in one file of ops/."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from npuflow.base.registry import Registry
from npuflow.hw.target import Numerics
from npuflow.ir.answers import No, Yes, first_no, need
from npuflow.ir.contract import (
    Algebra,
    Bound,
    FloatSemantics,
    Lowerable,
    Quantisable,
    Role,
    Scalable,
    Weights,
    bound_array,
)
from npuflow.ir.types import Array, QuantType, TensorType, Value

__all__ = [
    "OPS",
    "Algebra",
    "Bound",
    "Imported",
    "LoopBorder",
    "No",
    "Node",
    "OnnxCall",
    "Op",
    "OpContext",
    "OpSample",
    "Param",
    "Role",
    "Weights",
    "Yes",
    "bound_array",
    "first_no",
    "need",
]

OPS = Registry("ops", "npuflow.ops")

LoopBorder = Literal["", "carry", "slice", "capture", "last", "stack"]
Param = int | str | tuple[int, ...]   # an integer, integers, or the content digest of a constant array


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


# position of an input, and of what is read of it begin and shape, and the shape of the whole
InnerPart = tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Op(FloatSemantics, Quantisable["OpContext"], Lowerable["OpContext"], Scalable):
    """Base of every operator. Fields of a subclass are its attributes (named as in ONNX where ONNX has them);
    those by keyword alone are the compiler's own. Each base class is a part of the contract, which some rooms
    ask; this one is the source format, and what rules ask."""

    onnx: ClassVar[str] = ""              # ONNX operator type
    domain: ClassVar[str] = ""
    makes: ClassVar[Literal["", "codes", "floats"]] = ""  # of a step between float values and codes
    hosted: ClassVar[bool] = False        # a node of the source format kept whole: no NPU runs it
    border_of_loop: ClassVar[LoopBorder] = ""   # enters or leaves a loop: see `ir/loops.py`
    # inputs of which a plan reads a part in its place: see `ir/inner.py`
    inner: tuple[InnerPart, ...] = field(default=(), kw_only=True, repr=False)

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

    def to_onnx(self, site: OpContext) -> OnnxCall:
        """The ONNX node (newest supported opset) that computes `reference` without the clip."""
        return OnnxCall(self.onnx, self.onnx_attributes(), self.domain)

    def respelled(self) -> bool:
        """Whether rules may spell the node in other operators."""
        return True

    def border(self, site: OpContext) -> tuple[tuple[int, ...], float] | No:
        """The constant border that it puts around its first input: widths before all dimensions, then behind
        them, and the number. No: the border is not constant, or depends on the input."""
        return (0,) * (2 * len(site.shape(0))), 0.0

    def with_border(self, widths: Sequence[int], value: float = 0.0) -> Self:
        """The operator with another constant border."""
        raise NotImplementedError

    def framed(self, axis: int, before: int, behind: int) -> Self | None:
        """The operator with borders of these widths along a dimension of its first input; None: it has no
        windows along that one."""
        return None

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
class OpContext:
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
