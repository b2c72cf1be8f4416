"""Spells a Gemm with computed operands as MatMul, Mul and Add.
Its second operand is computed, or its addend is no constant of one number per column.
"""

from __future__ import annotations

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.rules import RULES, Change, Refusal
from npuflow.rules._match import per_channel
from npuflow.rules._parts import Decomposition, Parts


@RULES.entry
class SpellGemm(Decomposition):
    """A Gemm that targets run as it is stays; so does one of constants, which folds."""

    triggers = ("gemm",)
    makes = ("transpose", "matmul", "mul", "add", "clip", "reshape")

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        a, b, *more = (graph.const(i) for i in node.inputs)
        c = more[0] if more else None
        shape = graph.type(node.outputs[0]).shape
        bias = c is not None and per_channel(c, shape) is not None
        op = node.op
        scaled = op.alpha > 0 and (op.beta > 0 or not more)  # type: ignore[attr-defined]
        if (a is None and b is not None and scaled and (bias or not more)) or (
            a is not None and b is not None
        ):
            return None
        return super().rewrite(graph, node)

    def spelled(self, parts: Parts) -> tuple[str, ...]:
        op = parts.node.op
        assert isinstance(op, OPS["gemm"])
        a = parts.swapped(parts.input(0)) if op.transA else parts.input(0)
        b = parts.swapped(parts.input(1)) if op.transB else parts.input(1)
        y = parts.matmul(a, b)
        y = parts.mul(y, op.alpha, "scaled") if op.alpha != 1.0 else y
        if parts.input(2):
            c = parts.mul(parts.input(2), op.beta, "addend") if op.beta != 1.0 else parts.input(2)
            y = parts.add(y, c)
        return (parts.clip(y, *op.clip) if op.clip is not None else y,)
