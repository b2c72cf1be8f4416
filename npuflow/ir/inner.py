"""Lets nodes read parts of values where they lie, so that no command copies them.

In a plan of loops, a Slice whose readers work point by point is left out: they read its source, each from
the place where its part begins. So do those of an LSTM's gates, which one product makes. The graph that is
quantised, run and compared has the Slice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from npuflow.ir.graph import Graph
from npuflow.ir.op import InnerPart, Node
from npuflow.ir.space import DimMap, IterationDomain, Operand
from npuflow.ir.types import QuantType


def in_wholes(space: IterationDomain, inner: Sequence[InnerPart]) -> IterationDomain:
    """The space with operands that speak of the whole values."""
    inputs = list(space.inputs)
    for place, begins, _, whole in inner:
        operand = inputs[place]
        assert operand is not None
        moved = (replace(m, lo=b, hi=b) for m, b in zip(operand.maps, begins, strict=True))
        inputs[place] = Operand(operand.name, whole, tuple(moved))
    return replace(space, inputs=tuple(inputs))


def reading_inner(graph: Graph, within: Collection[tuple[str, ...]]) -> Graph:
    """The graph with readers of parts in the place of Slices. `within`: nodes by what they make; others
    stay."""
    consumers, nodes = graph.consumers(), {n.outputs: n for n in graph.nodes}
    for node in graph.nodes:
        begins = _begins(graph, node) if node.outputs in within else None
        out = node.outputs[0]
        readers = [n.outputs for n in consumers.get(out, [])]
        if begins is None or out in graph.outputs or not readers:
            continue
        if not all(r in within and _pointwise(graph, nodes[r], out) for r in readers):
            continue
        part = begins, graph.type(out).shape, graph.type(node.inputs[0]).shape
        for r in readers:
            nodes[r] = _reading(nodes[r], out, node.inputs[0], part)
        del nodes[node.outputs]
    return graph.replaced(nodes=tuple(nodes[n.outputs] for n in graph.nodes if n.outputs in nodes))


def _begins(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """Where the part begins that a node cuts out of its only input; None of other nodes."""
    if not node.is_integer or len(node.outputs) != 1 or len(node.inputs) != 1 or node.op.inner:
        return None
    site = graph.site(node)
    space = site.op.local_space(site) if site.consts[0] is None and node.op.moves(site) else None
    source = graph.values[node.inputs[0]]
    same = type(source.quant) is QuantType and source.quant == site.outputs[0].quant
    if space is None or not same or space.inputs[0] is None or site.shape(0) == site.out_shape:
        return None
    maps = space.inputs[0].maps
    plain = all(m == DimMap(f"d{d}", lo=m.lo, hi=m.lo) and m.lo >= 0 for d, m in enumerate(maps))
    return tuple(m.lo for m in maps) if plain and len(maps) == len(site.out_shape) else None


def _pointwise(graph: Graph, node: Node, value: str) -> bool:
    """Whether a node reads a value point by point, and does so once."""
    shape = graph.type(value).shape
    alike = node.is_integer and node.op.elementwise and graph.type(node.outputs[0]).shape == shape
    return alike and len(node.outputs) == 1 and node.inputs.count(value) == 1


def _reading(
    node: Node, part: str, whole: str, where: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
) -> Node:
    place = node.inputs.index(part)
    inputs = tuple(whole if v == part else v for v in node.inputs)
    inner = tuple(sorted((*node.op.inner, (place, *where))))
    return replace(node, op=replace(node.op, inner=inner), inputs=inputs)
