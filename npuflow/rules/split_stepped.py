"""Cuts products of a loop where its steps cut the results, so that some weights stay in local memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from npuflow.ir.graph import Graph, constant
from npuflow.ir.loops import loops, steps_of
from npuflow.ir.op import OPS, Node
from npuflow.ir.queries import kind, made_by, users
from npuflow.ir.types import Array, TensorType, Value
from npuflow.rules import RULES, Change, Refusal, Rule
from npuflow.rules._match import fresh, matrix_of, origins

LAYERS = ("host:lstm", "host:gru", "host:rnn")       # of which rules make loops
POINTWISE = ("add", "sub", "mul", "sigmoid", "tanh", "relu", "hardsigmoid", "clip")
LEAST = 1 << 14                         # weights: no local memory is too small for fewer


@RULES.entry
class SplitStepped(Rule):
    """All gates of a layer as one product, say, where local memory does not hold the weights of a step: they
    would be loaded again in every step, all of them. What works element by element between the product and
    the cuts is cut, too."""

    order = 47
    triggers = ("matmul", "gemm", *LAYERS)
    makes = ("matmul", "gemm", "slice", *POINTWISE)
    asks = True

    @classmethod
    def asks_at(cls, graph: Graph, node: Node) -> bool:
        held = [graph.type(v).size for v in node.inputs if v and graph.const(v) is not None]
        return max(held, default=0) > LEAST and (kind(node) in LAYERS or node.outputs[0] in steps_of(graph))

    def rewrite(self, graph: Graph, node: Node) -> Change | Refusal | None:
        if kind(node) in LAYERS or node.outputs[0] not in steps_of(graph) or not self.hardware.local_bytes:
            return None
        weights = matrix_of(graph, node)
        if weights is None or weights.size <= LEAST or len(graph.type(node.outputs[0]).shape) != 2:
            return None
        chain = _chain(graph, node)
        cuts = _cuts(graph, chain[-1].outputs[0])
        if len(cuts) < 2 or len(node.inputs) > 2 or _held(graph, node) <= self._room:
            return None
        return _split(graph, chain, cuts)

    @property
    def _room(self) -> int:
        return self.hardware.local_bytes * self.hardware.cores


def _held(graph: Graph, node: Node) -> int:
    """Numbers that the constants of a node's outermost loop have: bytes, of 8 bits."""
    (loop,) = (one for one in loops(graph) if any(graph.nodes[i] is node for i in one.nodes))
    read = {v for i in loop.nodes for v in graph.nodes[i].inputs if v and graph.const(v) is not None}
    return sum(graph.type(v).size for v in read)


def _chain(graph: Graph, node: Node) -> list[Node]:
    """The product, and what works on all of it element by element behind it, one node after the other."""
    chain, shape = [node], graph.type(node.outputs[0]).shape
    while True:
        value = chain[-1].outputs[0]
        readers = users(graph, value)
        if len(readers) != 1 or value in graph.outputs or kind(readers[0]) not in POINTWISE:
            return chain
        if not all(graph.type(v).shape == shape or graph.type(v).size == 1 for v in readers[0].inputs if v):
            return chain
        chain.append(readers[0])


def _cuts(graph: Graph, value: str) -> list[tuple[int, int, Node]]:
    """The columns that slices take of a value, in order, if these are all that read it, and no two share
    any."""
    width, found = graph.type(value).shape[-1], []
    for node in users(graph, value):
        op = node.op
        if made_by(graph, node.outputs[0], "slice") is None or op.clip is not None:
            return []
        starts, ends, axes, steps = op.starts, op.ends, op.axes, op.steps  # type: ignore[attr-defined]
        if axes not in ((1,), (-1,)) or tuple(steps) != (1,):
            return []
        begin, end, _ = slice(starts[0], ends[0]).indices(width)
        found.append((begin, end, node))
    found.sort(key=lambda cut: cut[:2])
    shared = any(a[1] > b[0] for a, b in pairwise(found))
    return [] if shared or value in graph.outputs else found


def _split(graph: Graph, chain: list[Node], cuts: list[tuple[int, int, Node]]) -> Change:
    nodes: list[Node] = []
    values: list[Value] = []
    consts: dict[str, Array] = {}
    product, origin = chain[0], origins(*chain, *(node for *_, node in cuts))
    axis = 0 if getattr(product.op, "transB", 0) else 1
    weights = graph.const(product.inputs[1])
    assert weights is not None
    for begin, end, cut in cuts:
        part, content = constant(
            fresh(graph, f"{cut.outputs[0]}:weight"), np.take(weights, np.arange(begin, end), axis)
        )
        values.append(part)
        consts |= content
        shape = (*graph.type(product.outputs[0]).shape[:-1], end - begin)
        renamed = {product.inputs[1]: part.id}
        for k, node in enumerate(chain):
            for v in node.inputs:
                if v and v not in renamed and k and graph.type(v).shape == graph.type(node.outputs[0]).shape:
                    renamed[v] = fresh(graph, f"{cut.outputs[0]}:{k}:part")
                    values.append(Value(renamed[v], TensorType(shape)))
                    op = OPS["slice"](starts=(begin,), ends=(end,), axes=(1,), steps=(1,))
                    nodes.append(Node(op, (v,), (renamed[v],), origin))
            last = k + 1 == len(chain)
            made = cut.outputs[0] if last else fresh(graph, f"{cut.outputs[0]}:{k}")
            if not last:
                values.append(Value(made, TensorType(shape)))
            inputs = tuple(renamed.get(v, v) for v in node.inputs)
            nodes.append(replace(node, inputs=inputs, outputs=(made,), origin=origin))
            renamed[node.outputs[0]] = made
    gone = (*chain, *(node for *_, node in cuts))
    return Change(gone, tuple(nodes), tuple(values), tuple(consts.items()))
