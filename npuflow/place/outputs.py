"""What placing and ranges have to know of outputs: constants, and scores beside other numbers.

A program's outputs need a producer: constants among them become the host's. A detector's output often joins
boxes (0 to 640) and scores (0 to 1) in one tensor. With one scale of 8 bits a score has no code but 0 left.
Such a Concat is the host's: it reads every part with the part's own scale.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import maker
from npuflow.ir.whole import whole_span
from npuflow.onnx.run import EXPORT_OPSET

_Size = Literal["score", "number", "both"]
KNOWN = "the output is the same for every input"


def output_joins(graph: Graph, chosen: Collection[int], kept: Collection[str] = ()) -> dict[int, str]:
    """Of the `chosen` nodes the Concats that join scores with other numbers, and of which nothing but outputs
    of the graph is made, with the reason. `kept`: values whose codes the model states; they stay."""
    found, known = {}, dict[str, _Size]()
    for i in _tail(graph, chosen, kept):
        node = graph.nodes[i]
        if node.op.algebra != "join":
            continue
        sizes = {name: _size(graph, name, known) for name in node.inputs}
        score = next((name for name, size in sizes.items() if size == "score"), "")
        number = next((name for name, size in sizes.items() if size == "number"), "")
        if score and number:
            found[i] = f'"{score}" holds scores, "{number}" other numbers: one scale would lose the scores'
    return found


def score_outputs(graph: Graph) -> dict[str, tuple[float, float]]:
    """Values that are compared with a threshold (a Sigmoid's) and are an output or moved into one, with the
    range that they never leave. Samples without a high score do not show it."""
    found: dict[str, tuple[float, float]] = {}
    waiting, seen = list(graph.outputs), set(graph.outputs)
    while waiting:
        value_id = waiting.pop()
        node = maker(graph, value_id)
        if node is None:
            continue
        if node.op.answers == "threshold" and node.op.bounded is not None:
            found[node.outputs[0]] = node.op.bounded
            continue
        more = [i for i in _picked(graph, node, value_id) if i not in seen]
        waiting.extend(more)
        seen.update(more)
    return found


def _tail(graph: Graph, chosen: Collection[int], kept: Collection[str]) -> Iterator[int]:
    """Chosen nodes that only move data, whose results are outputs or are read by such nodes alone."""
    consumers, states = graph.consumers(), {o for o, _ in graph.state}
    tail: set[tuple[str, ...]] = set()
    for i in reversed(range(len(graph.nodes))):
        node = graph.nodes[i]
        moves = i in chosen and node.op.moves_data and node.op.shares_scale
        if moves and all(_ends(graph, o, consumers.get(o, []), tail, {*states, *kept}) for o in node.outputs):
            tail.add(node.outputs)
            yield i


def _ends(
    graph: Graph, value_id: str, readers: list[Node], tail: Collection[tuple[str, ...]], not_: set[str]
) -> bool:
    read = bool(readers) or value_id in graph.outputs
    return read and value_id not in not_ and all(n.outputs in tail for n in readers)


def _size(graph: Graph, value_id: str, known: dict[str, _Size]) -> _Size:
    """Whether a value holds scores (what a Sigmoid or a Softmax makes, and products of it), other numbers, or
    both, as constants from 0 to 1 do, which any scale has."""
    if value_id not in known:
        node, const = maker(graph, value_id), graph.const(value_id)
        within = const is not None and bool(const.size) and 0 <= const.min() <= const.max() <= 1
        other: _Size = "both" if within else "number"
        known[value_id] = other if node is None else _made(graph, node, value_id, known)
    return known[value_id]


def _made(graph: Graph, node: Node, value_id: str, known: dict[str, _Size]) -> _Size:
    if node.op.answers and node.op.bounded is not None:
        return "score"
    picked = _picked(graph, node, value_id)
    if not picked and node.op.algebra == "product" and all(graph.const(i) is None for i in node.inputs):
        picked = node.inputs              # of scores: a score
    if node.op.algebra == "sum" and _chooses(graph, node):
        picked = node.inputs              # one of both, as a state is that stays behind a sequence's end
    sizes = {_size(graph, i, known) for i in picked if graph.const(i) is None}
    if len(sizes) == 1:
        return sizes.pop()
    return "both" if node.op.moves_data else "number"


def _chooses(graph: Graph, node: Node) -> bool:
    """Whether a sum is of products with flags of 0 and 1 of which no two are 1 at one place."""
    flags = [_flag(graph, value_id) for value_id in node.inputs]
    if len(flags) != 2 or not all(flags):
        return False
    held = [graph.const(flag) for flag in flags]
    if held[0] is not None and held[1] is not None:
        return not np.any(held[0] * held[1])
    for own, other in (flags, flags[::-1]):
        made = maker(graph, own)
        if made is not None and made.op.algebra == "difference" and made.inputs[1] == other:
            ones = graph.const(made.inputs[0])
            return ones is not None and bool((ones == 1).all())
    return False


def _flag(graph: Graph, value_id: str) -> str:
    """The flags that a product is made with; empty: it is none, or has none."""
    node = maker(graph, value_id)
    if node is None or node.op.algebra != "product":
        return ""
    return next((i for i in node.inputs if whole_span(graph, i) == (0, 1)), "")


def _picked(graph: Graph, node: Node, value_id: str) -> tuple[str, ...]:
    """The operands whose elements a result consists of: of a move, of a choice of the largest, of a look-up,
    of a ranking's values, but not of its positions; and what is multiplied by flags of 0 and 1."""
    if node.op.shares_scale:
        return tuple(i for i in node.inputs if i)
    if node.op.algebra == "product":
        real = tuple(i for i in node.inputs if whole_span(graph, i) != (0, 1))
        return real if len(real) == 1 and graph.const(real[0]) is None else ()
    tables = tuple(v for i, v in enumerate(node.inputs) if v and node.op.role(i) == "table")
    return tables if value_id == node.outputs[0] else ()


def with_known_outputs(graph: Graph) -> Graph:
    """The graph with a producer for each constant output; the constant goes on under the
    output's name and ":constant"."""
    known = {name: f"{name}:constant" for name in graph.outputs if graph.const(name) is not None}
    if not known:
        return graph
    values = dict(graph.values)
    for name, source in known.items():
        values[source] = replace(values[name], id=source)
        values[name] = replace(values[name], const=None)
    nodes = [replace(n, inputs=tuple(known.get(i, i) for i in n.inputs)) for n in graph.nodes]
    for name, source in known.items():
        op = OPS["host"](op_type="Identity", version=EXPORT_OPSET, types=(values[name].type,), reason=KNOWN)
        nodes.append(Node(op, (source,), (name,)))
    return graph.replaced(nodes=tuple(nodes), values=MappingProxyType(values))
