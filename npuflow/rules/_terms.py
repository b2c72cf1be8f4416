"""Products and sums read through their nodes: the number in front and what it multiplies,
whatever the order of writing."""

from __future__ import annotations

from dataclasses import dataclass

from npuflow.ir.graph import Graph
from npuflow.ir.op import Node
from npuflow.ir.queries import kind, maker, sole_user
from npuflow.rules._match import scalar


@dataclass(frozen=True)
class Product:
    """number * product of the values (sorted ids); `nodes` are those read through."""

    number: float
    factors: tuple[str, ...]
    nodes: tuple[Node, ...]


def product(graph: Graph, value_id: str, root: bool = True) -> Product:
    """The value as a product; Mul, Div by a number, Neg, and small whole powers are read
    through if nobody else reads them."""
    number = scalar(graph, value_id)
    if number is not None:
        return Product(number, (), ())
    node = maker(graph, value_id)
    if node is not None and node.op.clip is None and (root or sole_user(graph, value_id) is not None):
        name = kind(node)
        if name == "mul":
            return _times(node, product(graph, node.inputs[0], False), product(graph, node.inputs[1], False))
        if name == "div":
            by = scalar(graph, node.inputs[1])
            if by:
                return _times(node, product(graph, node.inputs[0], False), Product(1.0 / by, (), ()))
        if name == "neg":
            return _times(node, product(graph, node.inputs[0], False), Product(-1.0, (), ()))
        if name == "pow":
            exponent: float = node.op.exponent  # type: ignore[attr-defined]
            if exponent in (2.0, 3.0, 4.0):
                base = product(graph, node.inputs[0], False)
                n = int(exponent)
                return Product(base.number**n, tuple(sorted(base.factors * n)), (*base.nodes, node))
    return Product(1.0, (value_id,), ())


def _times(node: Node, a: Product, b: Product) -> Product:
    return Product(a.number * b.number, tuple(sorted((*a.factors, *b.factors))), (*a.nodes, *b.nodes, node))


@dataclass(frozen=True)
class Sum:
    """number + sum of the terms."""

    number: float
    terms: tuple[Product, ...]
    nodes: tuple[Node, ...]


def total(graph: Graph, value_id: str) -> Sum | None:
    """An Add or Sub of two products, or of a product and a number."""
    node = maker(graph, value_id)
    if node is None or kind(node) not in ("add", "sub") or node.op.clip is not None:
        return None
    sign = 1.0 if kind(node) == "add" else -1.0
    number, terms, nodes = 0.0, [], [node]
    for index, operand in enumerate(node.inputs):
        part = product(graph, operand, False)
        factor = part.number if index == 0 else sign * part.number
        if part.factors:
            terms.append(Product(factor, part.factors, part.nodes))
        else:
            number += factor
        nodes += part.nodes
    return Sum(number, tuple(terms), tuple(nodes))
