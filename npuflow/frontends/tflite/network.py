"""The network in the making: values of TFLite tensors in both layouts, and the codes they are rounded to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from npuflow.base.wording import counted
from npuflow.frontends._nodes.build import NodeBuilder
from npuflow.frontends.tflite.schema import Codes, Operator, TfliteNetwork, TfliteTensor
from npuflow.ir.types import Array, QuantType, TensorType, Value, span
from npuflow.onnx.run import EXPORT_OPSET
from npuflow.onnx.types import ELEMENTS

PLAIN, NCHW = "nhwc", "nchw"
ROW = "nc1w"                                             # three dimensions [N, W, C] as an image of one row
INTO, OUT_OF = (0, 3, 1, 2), (0, 2, 3, 1)                # permutations between them
PLACE = (0, 2, 3, 1)                                     # where an axis of NHWC lies in NCHW
ROW_PLACE = (0, 3, 1)                                    # where an axis of NWC lies in a row
ROUNDED = ("int8", "uint8", "int16")                     # element types whose codes stand for activations
WIDTHS = {"int4": 4, "int8": 8, "uint8": 8, "int16": 16}
ACTIVATIONS: dict[int, tuple[str, tuple[float, ...]]] = {
    1: ("Relu", ()), 2: ("Clip", (-1.0, 1.0)), 3: ("Clip", (0.0, 6.0)), 4: ("Tanh", ()), 5: ("Sign", ()),
}
# Converters leave out an activation whose work saturation does: behind these it is spelled out.
LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul", "BatchNormalization")


class TfliteOperatorError(Exception):
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
class TfliteBuilder:
    """Operators and constants go into `graph`; names of each tensor's value by layout.

    A tensor of four dimensions is kept in the layout in which it was produced; the other form is made where
    it is read. So is one of three that convolutions over one dimension give: a row of an image.
    """

    source: TfliteNetwork
    graph: NodeBuilder = field(default_factory=lambda: NodeBuilder({"": EXPORT_OPSET}))
    forms: dict[int, dict[str, str]] = field(default_factory=dict)
    # constants that are computed while reading
    folded: dict[int, Array] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)          # values whose rounding stays in the graph
    origin: str = ""
    _after: list[_Result] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._taken = {t.name for t in self.source.tensors}

    # --- tensors
    def tensor(self, index: int) -> TfliteTensor:
        return self.source.tensors[index]

    def data(self, index: int) -> Array | None:
        """A constant's stored values."""
        return self.folded.get(index, self.tensor(index).data)

    def ints(self, operator: Operator, place: int, what: str) -> list[int]:
        """A constant operand of whole numbers: axes, sizes, paddings."""
        index = operator.inputs[place] if place < len(operator.inputs) else -1
        held = self.data(index) if index >= 0 else None
        if held is None:
            raise TfliteOperatorError(f"{what} that the network computes")
        return [int(v) for v in held.reshape(-1)]

    def layout(self, indices: Sequence[int]) -> str:
        """The layout in which an operator on these operands, element by element,
        needs the fewest transpositions."""
        moving = [i for i in indices if self.data(i) is None]
        if moving and all(map(self.has_row, moving)):
            return ROW
        four = all(len(self.tensor(i).shape) == 4 for i in moving) and all(
            len(self.tensor(i).shape) <= 4 for i in indices
        )
        return NCHW if four and any(NCHW in self.forms[i] for i in moving) else PLAIN

    def home(self, index: int) -> str:
        """The layout in which a value was produced; of a row the plain one, as few operators take rows."""
        first = PLAIN if self.data(index) is not None else next(iter(self.forms[index]))
        return PLAIN if first == ROW else first

    def has_row(self, index: int) -> bool:
        """Whether a value of three dimensions is at hand as a row."""
        return ROW in self.forms.get(index, {})

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
        self.graph.call(kind, inputs, outputs, name or "", **attributes)

    def constant(self, values: Any, dtype: str = "float32", name: str = "") -> str:
        return self.graph.constant(self.free(name or f"{self.origin}:constant"), np.asarray(values, dtype))

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
            if ROW in (have, layout):
                self.turn_row(forms[have], value, tensor.shape, layout)
            else:
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

    def turn_row(self, source: str, result: str, shape: Sequence[int], layout: str) -> None:
        """[N, W, C] to [N, C, 1, W], or back."""
        batch, width, channels = shape
        if layout == ROW:
            row = self.node("Reshape", [source, self.shape([batch, 1, width, channels])])
            self.node("Transpose", [row], result, perm=INTO)
            return
        row = self.node("Transpose", [source], perm=OUT_OF)
        self.node("Reshape", [row, self.shape(shape)], result)

    def operand(self, index: int, layout: str) -> str:
        """A constant operand; in NCHW with four dimensions, so that it broadcasts as it did."""
        held, codes = self.data(index), self.tensor(index).codes if index not in self.folded else None
        assert held is not None
        if layout == NCHW and held.ndim:
            lead = 4 - held.ndim
            held = held.reshape((1,) * lead + held.shape).transpose(INTO)
            if codes is not None and codes.axis is not None:
                codes = Codes(codes.scale, codes.zero, PLACE[codes.axis + lead])
        if layout == ROW and held.ndim:
            lead = 3 - held.ndim
            held = held.reshape((1,) * lead + held.shape)[:, None].transpose(INTO)
            if codes is not None and codes.axis is not None:
                codes = Codes(codes.scale, codes.zero, ROW_PLACE[codes.axis + lead])
        return self.stored(held, codes, self.tensor(index))

    def stored(self, held: Array, codes: Codes | None, tensor: TfliteTensor) -> str:
        """A constant's values; those of codes as floats, with the codes stated."""
        if held.dtype == np.float16:
            held = held.astype(np.float32)
        if codes is None:
            return self.constant(held, held.dtype.name, f"{tensor.name}:value")
        if tensor.dtype in ("int32", "int64"):
            return self.constant(real(held, codes), "float32", f"{tensor.name}:value")
        scale, zero = along(codes, held.ndim)
        name = self.constant(
            (held.astype(np.int64) - zero).astype(np.float32) * scale, name=f"{tensor.name}:value"
        )
        quant = quant_type(codes, tensor.dtype)
        if quant is not None:
            self.graph.state(name, quant)
        return name

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

    def around(self, name: str, tensor: TfliteTensor, whole: bool) -> tuple[str, str]:
        """Names of a value before and behind its rounding, where that stays in the graph. An output of the
        network is the one behind; elsewhere the one before has the name."""
        codes = self.activation(tensor)
        if codes is None or quant_of(codes, tensor) is not None:
            return name, name
        return (self.free(f"{name}:real"), name) if whole else (name, self.free(f"{name}:back"))

    def finish(self) -> None:
        """Fused activations, rounding, and the network's outputs in their own layout."""
        after, self._after = self._after, []
        for one in after:
            if one.activation:
                if one.activation not in ACTIVATIONS:
                    raise TfliteOperatorError(f"activation function {one.activation}")
                kind, bounds = ACTIVATIONS[one.activation]
                self.node(kind, [one.first, *(self.constant(b) for b in bounds)], one.value)
            self.forms[one.index] = {one.layout: self.rounded(one.index, one.value, one.back)}
            if one.index in self.source.outputs:
                self.value(one.index, PLAIN)

    @staticmethod
    def activation(tensor: TfliteTensor) -> Codes | None:
        """The codes that a value is rounded to."""
        return tensor.codes if tensor.dtype in ROUNDED else None

    def rounded(self, index: int, value: str, back: str) -> str:
        """A value rounded to its tensor's codes: they are stated. Codes that no network computes with stay
        as rounding to `back`."""
        tensor = self.tensor(index)
        codes = self.activation(tensor)
        if codes is None:
            return value
        quant = quant_of(codes, tensor)
        if quant is None:
            return self.around_codes(tensor, codes, value, back)
        self.state(value, quant)
        return value

    def state(self, value: str, quant: QuantType) -> None:
        """States a value's codes. Behind a linear operator the saturation of the rounding is spelled out."""
        self.graph.state(value, quant)
        nodes = self.graph.nodes
        at = next((i for i in reversed(range(len(nodes))) if value in nodes[i].outputs), None)
        if at is None or nodes[at].op.onnx_type()[1] not in LINEAR:
            return
        whole, kind = self.free(f"{value}:all"), self.graph.values.pop(value).type
        self.graph.define(Value(whole, kind))
        later = nodes[at + 1 :]
        outputs = tuple(whole if o == value else o for o in nodes[at].outputs)
        self.graph.nodes = [*nodes[:at], replace(nodes[at], outputs=outputs)]
        bounds = zip(("min", "max"), span(quant), strict=True)
        ends = [self.constant(bound, name=f"{value}:{end}") for end, bound in bounds]
        self.graph.call("Clip", [whole, *ends], [value])
        self.graph.nodes += later

    def around_codes(self, tensor: TfliteTensor, codes: Codes, value: str, back: str) -> str:
        """QuantizeLinear and back, as operators of the network."""
        self.kept.append(value)
        many = codes.axis is not None
        scale = self.constant(codes.scale if many else codes.scale[0], name=f"{tensor.name}:scale")
        zero = self.constant(codes.zero if many else codes.zero[0], tensor.dtype, f"{tensor.name}:zero")
        more = {"axis": codes.axis} if many else {}
        code = self.node("QuantizeLinear", [value, scale, zero], self.free(f"{back}:code"), **more)
        return self.node("DequantizeLinear", [code, scale, zero], back, **more)

    def rounded_in_several_ways(self, index: int) -> bool:
        """Whether operators round this float value to different codes, or to several outputs."""
        found = [o.outputs[0] for o in self.source.operators if o.name == "QUANTIZE" and o.inputs[0] == index]
        codes = {(self.tensor(i).codes, self.tensor(i).dtype) for i in found}
        return len(codes) > 1 or sum(i in self.source.outputs for i in found) > 1

    def is_bound(self, value: str) -> bool:
        """Whether a value's name is that of an input or output of the network, or of a constant."""
        ends = {self.tensor(i).name for i in (*self.source.inputs, *self.source.outputs)}
        return value in ends or value in self.graph.arrays

    def alias(self, source: int, result: int) -> None:
        """A tensor that is another one's value."""
        layout = self.home(source)
        value = self.value(source, layout)
        name = self.tensor(result).name
        if result in self.source.outputs and layout == PLAIN:
            codes = self.activation(self.tensor(source))
            if self.is_bound(value) and codes is not None:       # no layer that would round it
                self.around_codes(self.tensor(source), codes, value, name)
            elif self.is_bound(value):
                self.node("Identity", [value], name)
            else:
                self.rename(value, name)
            value = name
        self.forms[result] = {layout: value}
        if result in self.source.outputs:
            self.value(result, PLAIN)

    def notes(self) -> list[str]:
        """What there is to say of the codes that the file states."""
        found, stated = [], len(self.graph.stated)
        if stated:
            found.append(f"the model states the codes of {counted(stated, 'tensor')}; these scales are kept")
        if self.kept:
            shown = ", ".join(self.kept[:3]) + (", ..." if len(self.kept) > 3 else "")
            found.append(
                f"stay as they are: {counted(len(self.kept), 'tensor')} rounded in several ways or at the "
                f"network's ends: {shown}"
            )
        return found

    def rename(self, old: str, new: str) -> None:
        """A value that turns out to be an output of the network gets the output's name."""
        self.graph.rename(old, new)
        for forms in self.forms.values():
            forms.update({layout: new for layout, name in forms.items() if name == old})

    def port(self, index: int) -> None:
        """An input of the network, and its value behind the rounding."""
        tensor = self.tensor(index)
        self.origin = tensor.name
        value, back = self.around(tensor.name, tensor, whole=False)
        self.forms[index] = {PLAIN: self.rounded(index, value, back)}

    def type(self, index: int) -> TensorType:
        """The type of an input or output: values of codes are real numbers."""
        tensor = self.tensor(index)
        return TensorType(tensor.shape, "float32" if self.activation(tensor) is not None else tensor.dtype)


def still(shape: Sequence[int]) -> bool:
    """Whether a tensor of four dimensions has the same order of elements in both layouts."""
    return shape[3] == 1 or shape[1] * shape[2] == 1


def along(codes: Codes, rank: int) -> tuple[Array, Array]:
    """Scale (float32) and zero point in shapes that go with an array of codes."""
    scale, zero = np.asarray(codes.scale, np.float32), np.asarray(codes.zero, np.int64)
    if codes.axis is None:
        return scale[0], zero[0]
    shape = [-1 if d == codes.axis else 1 for d in range(rank)]
    return scale.reshape(shape), zero.reshape(shape)


def quant_type(codes: Codes, dtype: str) -> QuantType | None:
    """The codes as a type; None for scales that are no positive numbers."""
    scale = np.asarray(codes.scale, np.float32).tolist()
    if not all(0 < s < np.inf for s in scale):
        return None
    return QuantType(WIDTHS[dtype], dtype != "uint8", tuple(scale), tuple(codes.zero), codes.axis)


def quant_of(codes: Codes, tensor: TfliteTensor) -> QuantType | None:
    """The codes of an activation; None where they are no type that a network computes with."""
    return None if codes.axis is not None else quant_type(codes, tensor.dtype)


def real(held: Array, codes: Codes) -> Array:
    """The numbers that codes stand for."""
    scale, zero = np.asarray(codes.scale), np.asarray(codes.zero)
    if codes.axis is None:
        scale, zero = scale[0], zero[0]
    else:
        around = [-1 if d == codes.axis else 1 for d in range(held.ndim)]
        scale, zero = scale.reshape(around), zero.reshape(around)
    return ((held.astype(np.int64) - zero) * scale).astype(np.float32)


def element(dtype: str) -> int:
    return ELEMENTS[dtype]
