"""The ONNX network in the making: values of TFLite tensors in both layouts, their codes
as QuantizeLinear and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from npuflow.frontends.tflite.schema import Codes, Network, Operator, Tensor
from npuflow.ir.types import Array

OPSET = 21
PLAIN, NCHW = "nhwc", "nchw"
INTO, OUT_OF = (0, 3, 1, 2), (0, 2, 3, 1)                # permutations between them
PLACE = (0, 2, 3, 1)                                     # where an axis of NHWC lies in NCHW
ROUNDED = ("int8", "uint8", "int16")                     # element types whose codes stand for activations
ACTIVATIONS: dict[int, tuple[str, tuple[float, ...]]] = {
    1: ("Relu", ()), 2: ("Clip", (-1.0, 1.0)), 3: ("Clip", (0.0, 6.0)), 4: ("Tanh", ()), 5: ("Sign", ()),
}


class UnsupportedError(Exception):
    """An operator that cannot be converted, with the reason."""


@dataclass(frozen=True)
class _Result:
    """An operator's result: names of what it gives, of the value behind the activation, and
    of that behind the rounding."""

    index: int
    layout: str
    activation: int
    first: str
    value: str
    back: str


@dataclass
class Builder:
    """Nodes and constants of the network, and the names of each tensor's value by layout.

    A tensor of four dimensions is kept in the layout in which it was produced; the other
    form is made where it is read.
    """

    source: Network
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    forms: dict[int, dict[str, str]] = field(default_factory=dict)
    # integer value, scale and zero point
    codes: dict[int, tuple[str, list[str]]] = field(default_factory=dict)
    # constants that are computed while reading
    folded: dict[int, Array] = field(default_factory=dict)
    origin: str = ""
    _after: list[_Result] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._taken = {t.name for t in self.source.tensors}

    # --- tensors
    def tensor(self, index: int) -> Tensor:
        return self.source.tensors[index]

    def data(self, index: int) -> Array | None:
        """A constant's stored values."""
        return self.folded.get(index, self.tensor(index).data)

    def ints(self, operator: Operator, place: int, what: str) -> list[int]:
        """A constant operand of whole numbers: axes, sizes, paddings."""
        index = operator.inputs[place] if place < len(operator.inputs) else -1
        held = self.data(index) if index >= 0 else None
        if held is None:
            raise UnsupportedError(f"{what} that the network computes")
        return [int(v) for v in held.reshape(-1)]

    def layout(self, indices: Sequence[int]) -> str:
        """The layout in which an operator on these operands, element by element,
        needs the fewest transpositions."""
        moving = [i for i in indices if self.data(i) is None]
        four = all(len(self.tensor(i).shape) == 4 for i in moving) and all(
            len(self.tensor(i).shape) <= 4 for i in indices
        )
        return NCHW if four and any(NCHW in self.forms[i] for i in moving) else PLAIN

    def home(self, index: int) -> str:
        """The layout in which a value was produced."""
        return PLAIN if self.data(index) is not None else next(iter(self.forms[index]))

    # --- nodes
    def free(self, name: str) -> str:
        while name in self._taken:
            name += "'"
        self._taken.add(name)
        return name

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Adds a node; `output`: its result's name, or a new one after the operator
        that is being converted."""
        output = output or self.free(f"{self.origin}:{kind.lower()}")
        self.many(kind, inputs, [output], **attributes)
        return output

    def many(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Adds a node of several results. The one that gives an operator's result
        has the name of the tensor."""
        name = next((self.tensor(one.index).name for one in self._after if one.first == outputs[0]), None)
        self.nodes.append(helper.make_node(kind, list(inputs), list(outputs), name, **attributes))

    def constant(self, values: Any, dtype: str = "float32", name: str = "") -> str:
        name = self.free(name or f"{self.origin}:constant")
        self.constants[name] = numpy_helper.from_array(np.asarray(values, dtype), name)
        return name

    def shape(self, sizes: Sequence[int]) -> str:
        return self.constant(list(sizes), "int64", f"{self.origin}:shape")

    # --- reading values
    def value(self, index: int, layout: str = PLAIN) -> str:
        """The name of a tensor's value in a layout."""
        if self.data(index) is not None:
            return self.operand(index, layout)
        forms = self.forms[index]
        if layout not in forms:
            tensor, have = self.tensor(index), next(iter(forms))
            whole = index in self.source.outputs and layout == PLAIN
            name = tensor.name if whole else self.free(f"{tensor.name}:{layout}")
            value, back = self.around(name, tensor, whole)
            self.turn(forms[have], value, tensor.shape, layout)
            forms[layout] = self.rounded(index, value, back)
        return forms[layout]

    def turn(self, source: str, result: str, shape: Sequence[int], layout: str) -> None:
        """From one layout to the other; a Reshape where nothing moves."""
        perm = INTO if layout == NCHW else OUT_OF
        if still(shape):
            sizes = [shape[a] for a in INTO] if layout == NCHW else shape
            self.node("Reshape", [source, self.shape(sizes)], result)
        else:
            self.node("Transpose", [source], result, perm=perm)

    def operand(self, index: int, layout: str) -> str:
        """A constant operand; in NCHW with four dimensions, so that it broadcasts as it did."""
        held, codes = self.data(index), self.tensor(index).codes if index not in self.folded else None
        assert held is not None
        if layout == NCHW and held.ndim:
            lead = 4 - held.ndim
            held = held.reshape((1,) * lead + held.shape).transpose(INTO)
            if codes is not None and codes.axis is not None:
                codes = Codes(codes.scale, codes.zero, PLACE[codes.axis + lead])
        return self.stored(held, codes, self.tensor(index))

    def stored(self, held: Array, codes: Codes | None, tensor: Tensor) -> str:
        """A constant's values as an initialiser, its codes behind a DequantizeLinear."""
        if held.dtype == np.float16:
            held = held.astype(np.float32)
        if codes is None:
            return self.constant(held, held.dtype.name, f"{tensor.name}:value")
        if tensor.dtype in ("int32", "int64"):
            return self.constant(real(held, codes), "float32", f"{tensor.name}:value")
        params = self.params(codes, tensor)
        stored = self.constant(held, _element(tensor.dtype), f"{tensor.name}:codes")
        more = {} if codes.axis is None else {"axis": codes.axis}
        name = self.free(f"{tensor.name}:value")
        return self.node("DequantizeLinear", [stored, *params], name, **more)

    # --- producing values
    def result(self, index: int, layout: str = PLAIN, activation: int = 0) -> str:
        """The name under which an operator gives its result; `finish` adds what follows."""
        tensor = self.tensor(index)
        whole = index in self.source.outputs and layout == PLAIN
        name = (
            tensor.name if whole or index not in self.source.outputs else self.free(f"{tensor.name}:{layout}")
        )
        value, back = self.around(name, tensor, whole)
        first = self.free(f"{name}:linear") if activation else value
        self._after.append(_Result(index, layout, activation, first, value, back))
        return first

    def around(self, name: str, tensor: Tensor, whole: bool) -> tuple[str, str]:
        """Names of a value before and behind its rounding. An output of the network is the one behind;
        elsewhere the one before has the name."""
        if self.activation(tensor) is None:
            return name, name
        return (self.free(f"{name}:real"), name) if whole else (name, self.free(f"{name}:back"))

    def finish(self) -> None:
        """Fused activations, rounding, and the network's outputs in their own layout."""
        after, self._after = self._after, []
        for one in after:
            if one.activation:
                if one.activation not in ACTIVATIONS:
                    raise UnsupportedError(f"activation function {one.activation}")
                kind, bounds = ACTIVATIONS[one.activation]
                self.node(kind, [one.first, *(self.constant(b) for b in bounds)], one.value)
            self.forms[one.index] = {one.layout: self.rounded(one.index, one.value, one.back)}
            if one.index in self.source.outputs:
                self.value(one.index, PLAIN)

    @staticmethod
    def activation(tensor: Tensor) -> Codes | None:
        """The codes that a value is rounded to."""
        return tensor.codes if tensor.dtype in ROUNDED else None

    def rounded(self, index: int, value: str, back: str) -> str:
        """A value rounded to its tensor's codes and back, as `back`; the value
        itself where it is not rounded."""
        tensor = self.tensor(index)
        codes = self.activation(tensor)
        if codes is None:
            return value
        params = self.params(codes, tensor)
        code = self.node("QuantizeLinear", [value, *params], self.free(f"{back}:code"))
        self.codes[index] = (code, params)
        return self.node("DequantizeLinear", [code, *params], back)

    def params(self, codes: Codes, tensor: Tensor) -> list[str]:
        """Names of scale and zero point as constants."""
        many = codes.axis is not None
        scale = self.constant(codes.scale if many else codes.scale[0], "float32", f"{tensor.name}:scale")
        zero = self.constant(
            codes.zero if many else codes.zero[0], _element(tensor.dtype), f"{tensor.name}:zero"
        )
        return [scale, zero]

    def port(self, index: int) -> onnx.ValueInfoProto:
        """An input of the network, and its value behind the rounding."""
        tensor = self.tensor(index)
        self.origin = tensor.name
        value, back = self.around(tensor.name, tensor, whole=False)
        self.forms[index] = {PLAIN: self.rounded(index, value, back)}
        return self.info(index)

    def info(self, index: int) -> onnx.ValueInfoProto:
        tensor = self.tensor(index)
        dtype = "float32" if self.activation(tensor) is not None else tensor.dtype
        return helper.make_tensor_value_info(tensor.name, element(dtype), list(tensor.shape))


def still(shape: Sequence[int]) -> bool:
    """Whether a tensor of four dimensions has the same order of elements in both layouts."""
    return shape[3] == 1 or shape[1] * shape[2] == 1


def real(held: Array, codes: Codes) -> Array:
    """The numbers that codes stand for."""
    scale, zero = np.asarray(codes.scale), np.asarray(codes.zero)
    if codes.axis is None:
        scale, zero = scale[0], zero[0]
    else:
        along = [-1 if d == codes.axis else 1 for d in range(held.ndim)]
        scale, zero = scale.reshape(along), zero.reshape(along)
    return ((held.astype(np.int64) - zero) * scale).astype(np.float32)


def element(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(_element(dtype))))


def _element(dtype: str) -> Any:
    if dtype != "int4":
        return np.dtype(dtype)
    return helper.tensor_dtype_to_np_dtype(onnx.TensorProto.INT4)
