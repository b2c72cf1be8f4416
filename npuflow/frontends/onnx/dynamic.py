"""Reads dynamically quantised products as float products with the codes of their weights.
Ranges of activations are those of calibration. An LSTM's weights are read as the numbers that they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import onnx

from npuflow.frontends._nodes.microsoft import MICROSOFT
from npuflow.frontends.onnx.qoperators import Expander
from npuflow.onnx.nodes import captured

_MAKER = "DynamicQuantizeLinear"
_WHOLE = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
_LAYER = "DynamicQuantizeLSTM"
_FLOAT = 1  # onnx's number of the type


def settled(
    expander: Expander, nodes: Iterable[onnx.NodeProto], outputs: Collection[str]
) -> tuple[list[onnx.NodeProto], int]:
    """The nodes with such products spelled out, and how many those are; `outputs`: of the network.

    Four forms, with constant weights: DynamicQuantizeMatMul and DynamicQuantizeLSTM; MatMulIntegerToFloat
    behind a DynamicQuantizeLinear; MatMulInteger or ConvInteger behind one, with a Cast and the product of
    both scales behind it, which onnxruntime's quantize_dynamic makes."""
    return _Settler(expander, list(nodes), outputs).result()


class _Settler:
    """One list of nodes. `rounded`: the float value and the scale by the codes that are made of it."""

    def __init__(self, expander: Expander, nodes: list[onnx.NodeProto], outputs: Collection[str]) -> None:
        self.expander, self.nodes, self.outputs = expander, nodes, outputs
        self.maker = {o: n for n in nodes for o in n.output if o}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in nodes:
            for name in _read(node):
                self.readers.setdefault(name, []).append(node)
        made = [n for n in nodes if n.op_type == _MAKER and len(n.output) == 3]
        self.rounded = {n.output[0]: (n.input[0], n.output[1]) for n in made}

    def result(self) -> tuple[list[onnx.NodeProto], int]:
        spelled: dict[str, list[onnx.NodeProto]] = {}  # by the first output of the node whose place they take
        for node in self.nodes:
            if node.domain == MICROSOFT and node.op_type in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat"):
                made = self.fused(node)
            elif node.domain == MICROSOFT and node.op_type == _LAYER:
                made = self.layer(node)
            else:
                made = self.spread(node) if node.op_type in _WHOLE else None
            if made is not None:
                spelled[_first(made[-1])] = made
        kept = []
        for node in self.nodes:
            kept += spelled.get(_first(node), [node])
        return self.used(kept), len(spelled)

    def used(self, nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """Without what only led to the products: roundings, whole sums and their scales that nobody reads."""
        mine = {"Cast", "Mul", _MAKER, *_WHOLE}
        before = {name for n in self.nodes for name in _read(n)}
        while True:
            read = {name for n in nodes for name in _read(n)}
            gone = [n for n in nodes if n.op_type in mine and self.lost(n, before, read)]
            if not gone:
                return nodes
            nodes = [n for n in nodes if n not in gone]

    def lost(self, node: onnx.NodeProto, before: Collection[str], read: Collection[str]) -> bool:
        """Whether all that read its results are gone."""
        results = [o for o in node.output if o]
        return not any(o in read or o in self.outputs for o in results) and any(o in before for o in results)

    def fused(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """One node of onnxruntime: a float input, or codes of one; weights, their scale and zero point."""
        given = [*node.input, *[""] * 7]
        x, weight, scale, zero, bias = (given[i] for i in (0, 1, 2, 3, 4))
        if node.op_type == "MatMulIntegerToFloat":
            if given[0] not in self.rounded or self.rounded[given[0]][1] != given[2]:
                return None
            x, scale, zero, bias = self.rounded[given[0]][0], given[3], given[5], given[6]
        return self.product(node, "MatMul", x, (weight, scale, zero), bias)

    def layer(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """An LSTM whose weights [directions, inputs, 4 * hidden] are codes, with scales of directions or of
        columns."""
        given = [*node.input, *[""] * 12]
        weights = []
        for place, scale, zero in ((1, 8, 9), (2, 10, 11)):
            names = [name for name in (given[place], given[scale], given[zero]) if name]
            held = [self.expander.consts.get(name) for name in names]
            if not given[scale] or any(array is None for array in held):
                return None
            codes, *params = (np.asarray(array, np.float32) for array in held)
            factor, *origin = (p.reshape(len(codes), 1, -1) for p in params)
            real = np.ascontiguousarray(((codes - sum(origin)) * factor).transpose(0, 2, 1))
            weights.append(self.expander.constant(f"{_first(node)}:weight{place}", real))
        made = onnx.helper.make_node("LSTM", [given[0], *weights, *given[3:8]], list(node.output), node.name)
        made.attribute.extend(node.attribute)
        while not made.input[-1]:
            made.input.pop()
        return [made]

    def spread(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """Whole sums, a Cast, and a product with both scales, each read by the next only."""
        given = [*node.input, *[""] * 4]
        found = self.rounded.get(given[0])
        cast = self.only_reader(node.output[0], "Cast")
        scaled = None if cast is None else self.only_reader(cast.output[0], "Mul")
        if found is None or cast is None or scaled is None or not self.floats(cast):
            return None
        source = self.maker.get(given[0])
        if source is None or (given[2] and given[2] != source.output[2]):
            return None
        factor = self.maker.get(next((i for i in scaled.input if i != cast.output[0]), ""))
        if factor is None or factor.op_type != "Mul" or found[1] not in factor.input:
            return None
        scale = next((i for i in factor.input if i != found[1]), "")
        return self.product(scaled, _WHOLE[node.op_type], found[0], (given[1], scale, given[3]), "", node)

    def product(
        self,
        node: onnx.NodeProto,
        op_type: str,
        x: str,
        weight: tuple[str, str, str],
        bias: str,
        window: onnx.NodeProto | None = None,
    ) -> list[onnx.NodeProto] | None:
        """The float product under the node's name; None where the codes are not constants."""
        consts = self.expander.consts
        if any(name not in consts for name in weight[:2]) or (weight[2] and weight[2] not in consts):
            return None
        held, scale = consts[weight[0]], consts[weight[1]]
        axis = 0 if op_type == "Conv" else held.ndim - 1
        if scale.size > 1 and (op_type == "Conv" or scale.size != held.shape[axis]):
            return None
        parts, (real,) = self.expander.real(node, [(*weight, axis)])
        out = node.output[0]
        named = (window or node).name or out
        made = onnx.helper.make_node(op_type, [x, real], [f"{out}:product" if bias else out], named)
        made.attribute.extend(window.attribute if window is not None else ())
        parts.append(made)
        if bias:
            parts.append(onnx.helper.make_node("Add", [made.output[0], bias], [out]))
        return parts

    def only_reader(self, name: str, op_type: str) -> onnx.NodeProto | None:
        found = [] if name in self.outputs else self.readers.get(name, [])
        return found[0] if len(found) == 1 and found[0].op_type == op_type else None

    def floats(self, cast: onnx.NodeProto) -> bool:
        return any(a.name == "to" and a.i == _FLOAT for a in cast.attribute)


def _first(node: onnx.NodeProto) -> str:
    return next((o for o in node.output if o), "")


def _read(node: onnx.NodeProto) -> list[str]:
    return [*node.input, *captured(node)]
