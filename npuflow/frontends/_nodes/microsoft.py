"""onnxruntime's fused operators (com.microsoft) as the standard operators that they stand for,
where that is all they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from npuflow.ir.types import UNRANKED, Array, TensorType

MICROSOFT = "com.microsoft"
UNLISTED = {"SimplifiedLayerNormalization"}   # onnxruntime has them in ONNX's own domain; ONNX does not
# of values whose type is not known: any rank will do to see which operators are made
ANY_TYPE = TensorType((1, 1))

Types = Mapping[str, TensorType]


def spelled(node: onnx.NodeProto, types: Types, prefix: str) -> list[onnx.NodeProto] | None:
    """The node as nodes of the default domain; None where it is more than they say,
    or uses what they lack."""
    form = FORMS.get(node.op_type) if node.domain == MICROSOFT else None
    if form is None or not node.input or not all(node.output[:1]):
        return None
    return form(FusedNode(node, types, prefix))


class FusedNode:
    """One fused node, and the nodes that take its place."""

    def __init__(self, node: onnx.NodeProto, types: Types, prefix: str) -> None:
        self.node, self.types, self.prefix = node, types, prefix
        self.attributes = {a.name: a for a in node.attribute}
        self.made: list[onnx.NodeProto] = []

    def input(self, index: int) -> str:
        return self.node.input[index] if index < len(self.node.input) else ""

    def has_output(self, index: int) -> bool:
        return index < len(self.node.output) and bool(self.node.output[index])

    def number(self, name: str, default: Any) -> Any:
        found = self.attributes.get(name)
        return default if found is None else onnx.helper.get_attribute_value(found)

    def rank(self, name: str) -> int | None:
        shape = self.types.get(name, ANY_TYPE).shape
        return None if shape == UNRANKED else len(shape)

    def add(self, op_type: str, inputs: list[str], name: str, **attributes: Any) -> str:
        """One more node, whose result is called `name` (the node's output: no
        prefix); its name in the graph."""
        output = name if name in self.node.output else f"{self.prefix}/{name}"
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        self.made.append(onnx.helper.make_node(op_type, inputs, [output], "", **attributes))
        return output

    def constant(self, name: str, values: Array | float) -> str:
        kind = self.types.get(self.node.input[0], ANY_TYPE).dtype
        array = np.asarray(values, kind if kind in ("float16", "float64") else "float32")
        output = f"{self.prefix}/{name}"
        self.made.append(
            onnx.helper.make_node("Constant", [], [output], value=onnx.numpy_helper.from_array(array))
        )
        return output

    def integers(self, name: str, values: Any, dtype: str = "int64") -> str:
        """Whole numbers, as indices are."""
        output = name if name in self.node.output else f"{self.prefix}/{name}"
        tensor = onnx.numpy_helper.from_array(np.asarray(values, dtype))
        self.made.append(onnx.helper.make_node("Constant", [], [output], value=tensor))
        return output

    def kept(self, *names: str) -> dict[str, Any]:
        """Attributes handed on as they are."""
        return {
            name: onnx.helper.get_attribute_value(self.attributes[name])
            for name in names
            if name in self.attributes
        }

    def done(self) -> list[onnx.NodeProto]:
        """All nodes; the one that computes most keeps the name."""
        heavy = [n for n in self.made if n.op_type in ("Conv", "MatMul", "Gemm", "LayerNormalization")]
        (heavy or self.made)[-1].name = self.node.name
        return self.made

    def activated(self, source: str, out: str, params: list[float]) -> str | None:
        """The activation that the attribute names; "" makes none."""
        name = self.number("activation", b"").decode()
        if name in ("Relu", "Tanh", "Sigmoid"):
            return self.add(name, [source], out)
        if name == "LeakyRelu" and len(params) >= 1:
            return self.add(name, [source], out, alpha=params[0])
        if name == "HardSigmoid" and len(params) >= 2:
            return self.add(name, [source], out, alpha=params[0], beta=params[1])
        if name == "Clip" and len(params) >= 2:
            return self.add(
                name, [source, self.constant("min", params[0]), self.constant("max", params[1])], out
            )
        return None


def _conv(f: FusedNode) -> list[onnx.NodeProto] | None:
    out, active, more = f.node.output[0], f.number("activation", b""), f.input(3)
    window = f.kept("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    last = f.add("Conv", [f.input(0), f.input(1), f.input(2)], "conv" if active or more else out, **window)
    if more:
        last = f.add("Add", [last, more], "sum" if active else out)
    if active and f.activated(last, out, list(f.number("activation_params", []))) is None:
        return None
    return f.done()


def _gemm(f: FusedNode) -> list[onnx.NodeProto] | None:
    out, active = f.node.output[0], f.number("activation", b"")
    last = f.add(
        "Gemm", list(f.node.input), "gemm" if active else out, **f.kept("alpha", "beta", "transA", "transB")
    )
    params = [f.number(f"activation_{name}", None) for name in ("alpha", "beta")]
    if active and f.activated(last, out, [p for p in params if p is not None]) is None:
        return None
    return f.done()


def _matmul(f: FusedNode) -> list[onnx.NodeProto] | None:
    if f.number("transBatchA", 0) or f.number("transBatchB", 0):
        return None
    out, alpha, operands = f.node.output[0], f.number("alpha", 1.0), []
    for index, side in enumerate("AB"):
        name, rank = f.input(index), f.rank(f.input(index))
        if f.number(f"trans{side}", 0) and rank != 1:
            if rank is None:
                return None
            name = f.add("Transpose", [name], side, perm=[*range(rank - 2), rank - 1, rank - 2])
        operands.append(name)
    last = f.add("MatMul", operands, "product" if alpha != 1.0 else out)
    if alpha != 1.0:
        f.add("Mul", [last, f.constant("alpha", alpha)], out)
    return f.done()


def _gelu(f: FusedNode) -> list[onnx.NodeProto]:
    source = f.add("Add", [f.input(0), f.input(1)], "sum") if f.input(1) else f.input(0)
    f.add("Gelu", [source], f.node.output[0], approximate="tanh" if f.node.op_type == "FastGelu" else "none")
    return f.done()


def _quick_gelu(f: FusedNode) -> list[onnx.NodeProto]:
    scaled = f.add("Mul", [f.input(0), f.constant("alpha", f.number("alpha", 1.702))], "scaled")
    f.add("Mul", [f.input(0), f.add("Sigmoid", [scaled], "gate")], f.node.output[0])
    return f.done()


def _normalized(f: FusedNode, total: str, weight: str, bias: str) -> list[onnx.NodeProto]:
    """LayerNormalization of each row, as the first output."""
    epsilon = f.number("epsilon", 1e-12)
    f.add("LayerNormalization", [total, weight, bias], f.node.output[0], axis=-1, epsilon=epsilon)
    return f.done()


def _skip_norm(f: FusedNode) -> list[onnx.NodeProto] | None:
    if f.has_output(1) or f.has_output(2):                       # the statistics, for training
        return None
    total = f.node.output[3] if f.has_output(3) else "sum"
    last = f.add("Add", [f.input(0), f.input(1)], "skipped" if f.input(4) else total)
    if f.input(4):
        last = f.add("Add", [last, f.input(4)], total)
    return _normalized(f, last, f.input(2), f.input(3))


def _embed_norm(f: FusedNode) -> list[onnx.NodeProto] | None:
    """Rows of words, of positions and perhaps of segments, added up and normalised."""
    shape = f.types.get(f.input(0), ANY_TYPE).shape
    if len(shape) != 2 or shape[1] < 1:
        return None
    places = f.input(8) or f.integers("places", [list(range(shape[1]))])
    total = f.add("Gather", [f.input(2), f.input(0)], "words", axis=0)
    total = f.add("Add", [total, f.add("Gather", [f.input(3), places], "positions", axis=0)], "placed")
    if f.input(1):
        total = f.add("Add", [total, f.add("Gather", [f.input(4), f.input(1)], "segments", axis=0)], "whole")
    if f.has_output(2):
        total = f.add("Identity", [total], f.node.output[2])
    if f.has_output(1):                   # how many words of each row are no padding
        if f.input(7):
            f.add("ReduceSum", [f.input(7), f.integers("axis", [1])], f.node.output[1], keepdims=0)
        else:
            f.integers(f.node.output[1], [0] * max(shape[0], 1), "int32")
    return _normalized(f, total, f.input(5), f.input(6))


def _bias_softmax(f: FusedNode) -> list[onnx.NodeProto] | None:
    axis, rank = f.number("axis", 1), f.rank(f.input(0))
    if axis != -1 and (rank is None or axis != rank - 1):        # else over several dimensions
        return None
    f.add("Softmax", [f.add("Add", [f.input(0), f.input(1)], "sum")], f.node.output[0], axis=-1)
    return f.done()


def _bias_add(f: FusedNode) -> list[onnx.NodeProto] | None:
    """BiasAdd, and BiasDropout as it is after training."""
    if f.has_output(1):
        return None
    out, more = f.node.output[0], f.input(2)
    total = f.add("Add", [f.input(0), f.input(1)], "sum" if more else out)
    if more:
        f.add("Add", [total, more], out)
    return f.done()


def _split_gelu(f: FusedNode) -> list[onnx.NodeProto]:
    total = f.add("Add", [f.input(0), f.input(1)], "sum")
    left, right = (f"{f.prefix}/{name}" for name in ("left", "right"))
    f.made.append(onnx.helper.make_node("Split", [total], [left, right], axis=-1, num_outputs=2))
    f.add("Mul", [left, f.add("Gelu", [right], "gate")], f.node.output[0])
    return f.done()


def _group_norm(f: FusedNode) -> list[onnx.NodeProto]:
    """Of images with the channels last; SiLU behind it."""
    last, active, out = f.number("channels_last", 1), f.number("activation", 0), f.node.output[0]
    x = f.add("Transpose", [f.input(0)], "first", perm=[0, 3, 1, 2]) if last else f.input(0)
    groups, epsilon = f.number("groups", 1), f.number("epsilon", 1e-5)
    name = "normal" if active or last else out
    x = f.add("GroupNormalization", [x, f.input(1), f.input(2)], name, num_groups=groups, epsilon=epsilon)
    if active:
        x = f.add("Mul", [x, f.add("Sigmoid", [x], "gate")], "active" if last else out)
    if last:
        f.add("Transpose", [x], out, perm=[0, 2, 3, 1])
    return f.done()


def _last_conv(f: FusedNode) -> list[onnx.NodeProto]:
    """A convolution with the channels of everything last."""
    x, w = (f.add("Transpose", [f.input(k)], name, perm=[0, 3, 1, 2]) for k, name in enumerate("xw"))
    window = f.kept("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    y = f.add("Conv", [x, w, f.input(2)], "conv", **window)
    f.add("Transpose", [y], f.node.output[0], perm=[0, 2, 3, 1])
    return f.done()


def _root_mean_square(f: FusedNode) -> list[onnx.NodeProto] | None:
    """SimplifiedLayerNormalization: x over its root mean square; the second result is one over that."""
    x, out, rank = f.input(0), f.node.output[0], f.rank(f.input(0))
    if rank is None:
        return None
    first = f.number("axis", -1) % rank
    axes = f.integers("axes", range(first, rank))
    mean = f.add("ReduceMean", [f.add("Mul", [x, x], "square"), axes], "mean", keepdims=1)
    total = f.add("Add", [mean, f.constant("epsilon", f.number("epsilon", 1e-5))], "total")
    root = f.add("Sqrt", [total], "root")
    if f.has_output(1):
        f.add("Reciprocal", [root], f.node.output[1])
    f.add("Mul", [f.add("Div", [x, root], "normalized"), f.input(1)], out)
    return f.done()


FORMS: Mapping[str, Callable[[FusedNode], list[onnx.NodeProto] | None]] = {
    "SimplifiedLayerNormalization": _root_mean_square,
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _matmul,
    "TransposeMatMul": _matmul,
    "Gelu": _gelu,
    "BiasGelu": _gelu,
    "FastGelu": _gelu,
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_norm,
    "EmbedLayerNormalization": _embed_norm,
    "BiasSoftmax": _bias_softmax,
    "BiasAdd": _bias_add,
    "BiasDropout": _bias_add,
    "BiasSplitGelu": _split_gelu,
    "GroupNorm": _group_norm,
    "NhwcConv": _last_conv,
}
