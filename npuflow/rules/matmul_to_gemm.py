"""MatMul by a constant matrix and the Add of a constant row after it become one Gemm."""

from __future__ import annotations

from math import prod

import numpy as np

from npuflow.ir.graph import Graph, constant
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import made_by, sole_user
from npuflow.ir.types import TensorType, Value
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import fresh, origins, per_channel, plain_float


@RULES.entry
class MatmulToGemm(Rule):
    """Leading dimensions of the left operand are flattened by reshapes, which cost nothing."""

    order = 30
    triggers = ("add",)
    makes = ("gemm", "reshape")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        pairs = ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0]))
        for product, other in pairs:
            source, row = made_by(graph, product, "matmul"), graph.const(other)
            if source is not None and row is not None and plain_float(graph, node):
                return self.merged(graph, node, source, row)
        return None

    def merged(self, graph: Graph, node: Node, source: Node, row: object) -> Change | Refusal:
        shape = graph.type(source.outputs[0]).shape
        weight, left = graph.const(source.inputs[1]), graph.type(source.inputs[0])
        reason = ""
        if weight is None or weight.ndim != 2:
            reason = "the right operand is not a constant matrix"
        elif sole_user(graph, source.outputs[0]) is not node or source.op.clip is not None:
            reason = "the product is clipped or read elsewhere too"
        elif graph.type(node.outputs[0]).shape != shape or len(left.shape) < 2:
            reason = "the Add widens the product"
        bias = per_channel(np.asarray(row), shape, len(shape) - 1) if not reason else None
        if bias is None:
            return Refusal("matmul_to_gemm", node.name, reason or "the addend is not one number per column")
        row_value, consts = constant(
            fresh(graph, f"{node.outputs[0]}:bias"), np.ascontiguousarray(bias).astype(np.float32)
        )
        values, nodes, origin = [row_value], [], origins(source, node)
        x, y, out = source.inputs[0], node.outputs[0], node.outputs[0]
        if len(shape) > 2:
            rows, inner = prod(left.shape[:-1]), left.shape[-1]
            x, y = fresh(graph, f"{out}:rows"), fresh(graph, f"{out}:product")
            values += [Value(x, TensorType((rows, inner))), Value(y, TensorType((rows, shape[-1])))]
            nodes.append(Node(OPS["reshape"]((rows, inner)), (source.inputs[0],), (x,), origin))
        nodes.append(Node(OPS["gemm"](clip=node.op.clip), (x, source.inputs[1], row_value.id), (y,), origin))
        if len(shape) > 2:
            nodes.append(Node(OPS["reshape"](shape), (y,), (out,), origin))
        return Change((source, node), tuple(nodes), tuple(values), tuple(consts.items()))
