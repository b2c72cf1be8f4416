"""Operators on codes (QLinearConv and its like, and movers of codes) as float operators
between QuantizeLinear and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from npuflow.frontends._nodes.microsoft import MICROSOFT
from npuflow.ir.types import Array

UNARY = {  # x, its scale and zero point, the result's scale and zero point
    "QLinearAveragePool": "AveragePool",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
    "QLinearSigmoid": "Sigmoid",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearSoftmax": "Softmax",
    "QLinearReduceMean": "ReduceMean",
}
BINARY = {"QLinearAdd": "Add", "QLinearMul": "Mul"}
MOVERS = {
    "MaxPool",
    "Reshape",
    "Transpose",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Slice",
    "Identity",
    "DepthToSpace",
    "SpaceToDepth",
    "Split",
    "Resize",
    "Gather",
    "Expand",
    "Tile",
}
FEWEST = {  # inputs; with less the node is not valid, which others will say
    "QLinearConv": 8,
    "QLinearMatMul": 8,
    "QGemm": 6,
    "QLinearConcat": 5,
    **dict.fromkeys(BINARY, 7),
    **dict.fromkeys(MOVERS, 1),
}
OWN = ("channels_last", "opset")          # attributes that the float operator does not have

Params = tuple[str, str]                  # names of scale and zero point ("": none)


@dataclass
class Expander:
    """`consts`: arrays by name, to which products of scales are added. `codes`: scale and
    zero point of integer values."""

    consts: dict[str, Array]
    added: dict[str, Array] = field(default_factory=dict)
    codes: dict[str, Params] = field(default_factory=dict)
    axes: dict[str, int] = field(default_factory=dict)

    def all(self, nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
        """The nodes in order, those on codes spelled out."""
        for node in nodes:
            if node.op_type == "QuantizeLinear" and len(node.input) > 1 and node.output:
                self.codes[node.output[0]] = (node.input[1], node.input[2] if len(node.input) > 2 else "")
            yield from self.one(node)

    def one(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        make: Callable[[onnx.NodeProto], list[onnx.NodeProto]] | None = None
        if node.op_type == "QLinearConv" and node.domain in ("", "ai.onnx"):
            make = self.conv
        elif node.op_type == "QLinearMatMul":
            make = self.matmul
        elif node.domain == MICROSOFT:
            known: Mapping[str, Callable[[onnx.NodeProto], list[onnx.NodeProto]]] = {
                "QGemm": self.gemm, "QLinearConcat": self.concat,
                **dict.fromkeys(UNARY, self.unary), **dict.fromkeys(BINARY, self.binary),
            }
            make = known.get(node.op_type)
            last = next((a.i for a in node.attribute if a.name == "channels_last"), 0)
            make = None if last else make
        elif (
            node.op_type in MOVERS
            and node.input
            and node.input[0] in self.codes
            and node.domain in ("", "ai.onnx")
        ):
            make = self.mover
        if make is None or len(node.input) < FEWEST.get(node.op_type, 4) or not all(node.output[:1]):
            yield node
        else:
            yield from make(node)

    # --- the families
    def conv(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        x, xs, xz, w, ws, wz, ys, yz = node.input[:8]
        parts, inputs = self.real(node, [(x, xs, xz, None), (w, ws, wz, 0)])
        if len(node.input) > 8 and node.input[8]:
            parts.append(self.bias(node, node.input[8], (xs, ws)))
            inputs.append(parts[-1].output[0])
        return self.closed(node, "Conv", parts, inputs, (ys, yz))

    def matmul(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        a, a_s, az, b, bs, bz, ys, yz = node.input[:8]
        rank = self.consts[b].ndim if b in self.consts else 2
        parts, inputs = self.real(node, [(a, a_s, az, None), (b, bs, bz, rank - 1)])
        return self.closed(node, "MatMul", parts, inputs, (ys, yz))

    def gemm(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        a, a_s, az, b, bs, bz = node.input[:6]
        transposed = next((v.i for v in node.attribute if v.name == "transB"), 0)
        parts, inputs = self.real(node, [(a, a_s, az, None), (b, bs, bz, 0 if transposed else 1)])
        if len(node.input) > 6 and node.input[6]:
            alpha = next((v.f for v in node.attribute if v.name == "alpha"), 1.0)
            parts.append(self.bias(node, node.input[6], (a_s, bs), alpha))
            inputs.append(parts[-1].output[0])
        ends = (
            (node.input[7], node.input[8] if len(node.input) > 8 else "")
            if len(node.input) > 7 and node.input[7]
            else None
        )
        return self.closed(node, "Gemm", parts, inputs, ends)

    def unary(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        x, xs, xz, ys = node.input[:4]
        parts, inputs = self.real(node, [(x, xs, xz, None)])
        return self.closed(
            node, UNARY[node.op_type], parts, inputs, (ys, node.input[4] if len(node.input) > 4 else "")
        )

    def binary(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        a, a_s, az, b, bs, bz, cs = node.input[:7]
        parts, inputs = self.real(node, [(a, a_s, az, None), (b, bs, bz, None)])
        return self.closed(
            node, BINARY[node.op_type], parts, inputs, (cs, node.input[7] if len(node.input) > 7 else "")
        )

    def concat(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        triples = [(*node.input[i : i + 3], None) for i in range(2, len(node.input), 3)]
        parts, inputs = self.real(node, triples)
        return self.closed(node, "Concat", parts, inputs, (node.input[0], node.input[1]))

    def mover(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        params = self.codes[node.input[0]]
        parts, inputs = self.real(node, [(node.input[0], *params, None)])
        return self.closed(node, node.op_type, parts, [*inputs, *node.input[1:]], params)

    # --- pieces
    def real(
        self, node: onnx.NodeProto, operands: Sequence[tuple[str, str, str, int | None]]
    ) -> tuple[list[onnx.NodeProto], list[str]]:
        """DequantizeLinear of every operand (code, scale, zero point, axis of several
        scales), and their results' names."""
        parts, names = [], []
        for i, (code, scale, zero, axis) in enumerate(operands):
            name = f"{node.output[0]}:in{i}"
            many = axis is not None and scale in self.consts and self.consts[scale].size > 1
            params = [self.scalar(p, many) for p in (scale, zero) if p]
            parts.append(_back([code, *params], name, axis if many else None))
            names.append(name)
        return parts, names

    def scalar(self, name: str, many: bool) -> str:
        """A parameter of one element is a scalar in QuantizeLinear, and may be a vector
        of one in operators on codes."""
        held = self.consts.get(name)
        if many or held is None or held.ndim == 0 or held.size != 1:
            return name
        return self.constant(f"{name}:scalar", held.reshape(()))

    def bias(
        self, node: onnx.NodeProto, codes: str, scales: tuple[str, str], alpha: float = 1.0
    ) -> onnx.NodeProto:
        """An int32 bias: its scale is the product of the others."""
        first, second = (self.consts.get(s) for s in scales)
        if (
            first is None
            or second is None
            or not (first.size and second.size and first.dtype.kind == second.dtype.kind == "f")
        ):
            return _back([codes, scales[0]], f"{node.output[0]}:bias", None)
        scale = (first.reshape(-1)[0] * second.reshape(-1) * np.float32(alpha)).astype(np.float32)
        many = scale.size > 1
        name = self.constant(f"{node.output[0]}:bias_scale", scale if many else scale.reshape(()))
        return _back([codes, name], f"{node.output[0]}:bias", 0 if many else None)

    def closed(
        self,
        node: onnx.NodeProto,
        op_type: str,
        parts: list[onnx.NodeProto],
        inputs: Sequence[str],
        ends: Params | None,
    ) -> list[onnx.NodeProto]:
        """The float operator, and QuantizeLinear of its results."""
        outputs = [f"{o}:real" if ends is not None and o else o for o in node.output]
        made = onnx.helper.make_node(op_type, list(inputs), outputs, node.name)
        made.attribute.extend(a for a in node.attribute if a.name not in OWN)
        parts.append(made)
        for real, code in zip(outputs, node.output, strict=True):
            if ends is not None and code:
                params = [self.scalar(p, False) for p in ends if p]
                parts.append(onnx.helper.make_node("QuantizeLinear", [real, *params], [code]))
                self.codes[code] = (params[0], params[1] if len(params) > 1 else "")
        return parts

    def constant(self, name: str, array: Array) -> str:
        self.consts[name] = self.added[name] = array
        return name


def _back(inputs: Sequence[str], output: str, axis: int | None) -> onnx.NodeProto:
    node = onnx.helper.make_node("DequantizeLinear", list(inputs), [output])
    if axis is not None:
        node.attribute.append(onnx.helper.make_attribute("axis", axis))
    return node
