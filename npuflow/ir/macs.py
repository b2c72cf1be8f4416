"""Multiply-accumulates of a node from its shapes alone: what a float graph's cost is, whoever runs it."""

from __future__ import annotations

from math import prod

from npuflow.ir.graph import Graph, Node
from npuflow.ir.types import TensorType

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def node_macs(graph: Graph, node: Node) -> int:
    """0 for nodes that multiply nothing and for shapes that are not static."""
    kind = getattr(node.op, "op_type", "") or node.op.onnx
    ins = [graph.type(i) if i else None for i in node.inputs]
    outs = [graph.type(o) for o in node.outputs if o]
    if not outs or any(t is not None and not t.is_static for t in (*ins, *outs)):
        return 0
    first, second = (*ins, None, None)[:2]
    if first is None or second is None:
        return 0
    return _macs(kind, first, second, outs[0], node)


def graph_macs(graph: Graph) -> int:
    """Multiply-accumulates of all nodes."""
    return sum(node_macs(graph, node) for node in graph.nodes)


def _macs(kind: str, first: TensorType, second: TensorType, out: TensorType, node: Node) -> int:
    if kind in ("Conv", "ConvInteger"):
        return out.size * prod(second.shape[1:])
    if kind == "ConvTranspose":
        return first.size * prod(second.shape[1:])
    if kind in ("MatMul", "MatMulInteger"):
        return out.size * (first.shape[-1] if first.shape else 1)
    if kind == "Gemm":
        transposed = bool(getattr(node.op, "transA", 0) or dict(getattr(node.op, "attributes", ())).get("transA", 0))
        return out.size * first.shape[0 if transposed else 1]
    if kind in _GATES and len(first.shape) == 3 and len(second.shape) == 3:
        hidden = second.shape[1] // _GATES[kind]
        steps = first.shape[0] * first.shape[1]
        return steps * second.shape[0] * second.shape[1] * (second.shape[2] + hidden)
    return 0
