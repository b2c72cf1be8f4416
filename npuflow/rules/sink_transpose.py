"""A Transpose moves below element-wise operators where that lets it meet another
one, or merges two into one."""

from __future__ import annotations

from dataclasses import replace

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import kind, made_by, sole_user
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import fresh, scalar

_BINARY = ("add", "sub", "mul", "div", "min", "max")


@RULES.entry
class SinkTranspose(Rule):
    """Unary operators are passed only on the way to another Transpose; two equal Transposes become one."""

    order = 25
    makes = ("transpose",)

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        moved = [made_by(graph, i, "transpose") for i in node.inputs]
        if not any(moved) or len(node.outputs) != 1:
            return None
        if node.op.unary and moved[0] is not None:
            return self.sunk(graph, node, moved) if self.meets(graph, node) else None
        if kind(node) not in _BINARY:
            return None
        a, b = moved
        if a is not None and b is not None:
            if a.op != b.op:
                return Refusal("sink_transpose", node.name, "its operands are transposed in different ways")
            alone = all(sole_user(graph, m.outputs[0]) is node for m in (a, b))
            return self.sunk(graph, node, moved) if alone or self.meets(graph, node) else None
        numbers = [
            m is not None or scalar(graph, i) is not None for m, i in zip(moved, node.inputs, strict=True)
        ]
        return self.sunk(graph, node, moved) if all(numbers) and self.meets(graph, node) else None

    def meets(self, graph: Graph, node: Node) -> bool:
        """Whether only element-wise operators with one reader, of one operand but for single numbers, lie
        between here and the next Transpose."""
        user = sole_user(graph, node.outputs[0])
        while user is not None and (user.op.unary or self.by_a_number(graph, user)):
            user = sole_user(graph, user.outputs[0])
        return user is not None and kind(user) == "transpose"

    def by_a_number(self, graph: Graph, node: Node) -> bool:
        return kind(node) in _BINARY and any(scalar(graph, i) is not None for i in node.inputs)

    def sunk(self, graph: Graph, node: Node, moved: list[Node | None]) -> Change:
        mover = next(m for m in moved if m is not None)
        inputs = tuple(m.inputs[0] if m is not None else i for m, i in zip(moved, node.inputs, strict=True))
        inner = replace(graph.values[mover.inputs[0]], id=fresh(graph, f"{node.outputs[0]}:untransposed"))
        below = Node(node.op, inputs, (inner.id,), node.origin)
        perm: tuple[int, ...] = mover.op.perm  # type: ignore[attr-defined]
        again = Node(OPS["transpose"](perm), (inner.id,), node.outputs, mover.origin)
        return Change((node,), (below, again), (inner,))
