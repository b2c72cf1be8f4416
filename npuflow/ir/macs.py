"""Multiply-accumulates of a node from its shapes alone, whoever runs it: also of
operators that only the host has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from npuflow.ir.graph import Graph
from npuflow.ir.loops import times
from npuflow.ir.op import Node
from npuflow.ir.types import TensorType

Shape = tuple[int, ...]
CALL = 1 << 16  # multiply-accumulates in whose time a runtime calls a node


class _Unknown(Exception):
    """A shape that the count needs is not static, or is absent."""


@dataclass(frozen=True)
class _Call:
    """A node as its formula reads it: types by position (None: absent), attributes by name."""

    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType | None, ...]
    attributes: Mapping[str, Any]

    def shape(self, index: int) -> Shape:
        return _shape(self.inputs, index)

    def out(self, index: int = 0) -> Shape:
        return _shape(self.outputs, index)

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def past(self, index: int, axis: int) -> int:
        """Steps that a cache holds already; 0 where there is none."""
        return self.shape(index)[axis] if self.has(index) else 0


def _shape(types: tuple[TensorType | None, ...], index: int) -> Shape:
    kind = types[index] if index < len(types) else None
    if kind is None or not kind.is_static:
        raise _Unknown
    return kind.shape


def node_macs(graph: Graph, node: Node) -> int:
    """0 for nodes that multiply nothing and where a shape that matters is not static (see `macs_known`). In a
    loop those of all steps."""
    return (_count(graph, node) or 0) * times(graph, node)


def macs_known(graph: Graph, node: Node) -> bool:
    """Whether the count is known: shapes are static and the node runs no graph of its own."""
    return _count(graph, node) is not None


def graph_macs(graph: Graph) -> int:
    """Multiply-accumulates of all nodes."""
    return sum(node_macs(graph, node) for node in graph.nodes)


def pass_macs(graph: Graph) -> int:
    """Multiply-accumulates in whose time the host runs the graph once: a loop has few to do, but thousands of
    nodes to call."""
    return max(graph_macs(graph) + CALL * sum(times(graph, node) for node in graph.nodes), 1)


def kind_of(node: Node) -> str:
    """The ONNX operator that a node is; of another domain with the domain before it."""
    family, name = node.op.onnx_type()
    return f"{family}:{name}" if family not in ("", "ai.onnx") else name


def attributes_of(node: Node) -> dict[str, Any]:
    """Attributes by their ONNX names, of operator files and of operators kept whole for the host."""
    return dict(node.op.onnx_attributes())


def _count(graph: Graph, node: Node) -> int | None:
    kind = kind_of(node)
    if kind in _GRAPHS:
        return None
    formula = _FORMULAS.get(kind)
    if formula is None:
        return 0
    inputs = tuple(graph.type(i) if i else None for i in node.inputs)
    outputs = tuple(graph.type(o) if o else None for o in node.outputs)
    try:
        return formula(_Call(inputs, outputs, attributes_of(node)))
    except (_Unknown, IndexError):
        return None


# --- convolutions and products
def _convolution(weight: int) -> Callable[[_Call], int]:
    return lambda c: prod(c.out()) * prod(c.shape(weight)[1:])


def _transposed_convolution(c: _Call) -> int:
    return prod(c.shape(0)) * prod(c.shape(1)[1:])


def _product(c: _Call) -> int:
    a = c.shape(0)
    if not c.attributes.get("transA") or len(a) < 2:
        return prod(c.out()) * (a[-1] if a else 1)
    return prod(c.out()) * a[0 if c.attributes.get("transBatchA") else -2]


def _gemm(c: _Call) -> int:
    return prod(c.out()) * c.shape(0)[0 if c.attributes.get("transA") else 1]


def _packed_product(c: _Call) -> int:
    return prod(c.out()) * int(c.attributes["K"])


def _einsum(c: _Call) -> int:
    """The whole space of indices, once for every operand beyond the first."""
    terms = str(c.attributes["equation"]).replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for index, term in enumerate(terms):
        shape = c.shape(index)
        head, dots, tail = term.partition("...")
        between = len(shape) - len(head) - len(tail)
        names = [*head, *((f"...{between - k}" for k in range(between)) if dots else ()), *tail]
        for name, size in zip(names, shape, strict=True):
            sizes[name] = max(size, sizes.get(name, 1))
    return (len(terms) - 1) * prod(sizes.values())


# --- recurrent layers: every step multiplies all input and recurrent weights of every direction
def _recurrent(c: _Call) -> int:
    steps, batch = c.shape(0)[:2]
    return steps * batch * (prod(c.shape(1)) + prod(c.shape(2)))


# --- attention: scores and their products with the values, after the projections where the operator has them
def _attention(c: _Call) -> int:
    steps = c.shape(1)[-2] + c.past(4, -2)
    return steps * (prod(c.shape(0)) + prod(c.out()))


def _projected_attention(past: int) -> Callable[[_Call], int]:
    def count(c: _Call) -> int:
        batch, steps, _ = c.shape(0)
        weights, result = c.shape(1), c.out()
        queries = batch * steps * (weights[1] - result[-1]) // 2
        seen = steps + c.past(past, -2)
        return batch * steps * prod(weights) + seen * (queries + prod(result))

    return count


def _multi_head(c: _Call) -> int:
    query = c.shape(0)
    keys = c.shape(1) if c.has(1) else query
    steps = keys[2] if len(keys) == 4 else keys[1]
    return (steps + c.past(6, -2)) * 2 * prod(c.out())


def _grouped_query(c: _Call) -> int:
    steps = (c.shape(1) if c.has(1) else c.shape(0))[1]
    return (steps + c.past(3, -2)) * 2 * prod(c.out())


_GRAPHS = frozenset(("If", "Loop", "Scan", "SequenceMap"))
_MS = "com.microsoft:"
_FORMULAS: Mapping[str, Callable[[_Call], int]] = {
    **dict.fromkeys(("Conv", "ConvInteger", "DeformConv"), _convolution(1)),
    **dict.fromkeys((_MS + "FusedConv", _MS + "NhwcFusedConv", "com.ms.internal.nhwc:Conv"), _convolution(1)),
    **dict.fromkeys(("QLinearConv", _MS + "QLinearConv"), _convolution(3)),
    **dict.fromkeys(("ConvTranspose", _MS + "ConvTransposeWithDynamicPads"), _transposed_convolution),
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), _product),
    **dict.fromkeys((_MS + n for n in ("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul")), _product),
    **dict.fromkeys(
        (_MS + n for n in ("MatMulInteger16", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")), _product
    ),
    **dict.fromkeys((_MS + n for n in ("MatMulNBits", "MatMulBnb4", "MatMulFpQ4")), _packed_product),
    **dict.fromkeys(("Gemm", _MS + "FusedGemm", _MS + "QGemm", _MS + "GemmFloat8"), _gemm),
    "Einsum": _einsum,
    **dict.fromkeys(("LSTM", "GRU", "RNN", _MS + "DynamicQuantizeLSTM"), _recurrent),
    "Attention": _attention,
    _MS + "Attention": _projected_attention(4),
    _MS + "QAttention": _projected_attention(8),
    _MS + "MultiHeadAttention": _multi_head,
    _MS + "GroupQueryAttention": _grouped_query,
}
