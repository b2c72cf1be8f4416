"""Writes the loops of a graph out, step after step: nodes of one step under names of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir import forms
from npuflow.ir.graph import Graph, constant, prune
from npuflow.ir.loops import Loop, border, has_loops, loops
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.types import Array, Value


def written_out(graph: Graph, numerics: Numerics) -> Graph:
    """The graph without loops. What a step computes of constants alone, as the first one of initial values,
    is a constant; of a quantised graph by `numerics`."""
    if not has_loops(graph):
        return graph
    made = _Straight(graph, numerics)
    first = {loop.nodes[0]: loop for loop in loops(graph)}
    inner = {i for loop in first.values() for i in loop.nodes}
    for i, node in enumerate(graph.nodes):
        if i in first:
            made.loop(first[i])
        elif i not in inner:
            made.nodes.append(node)
    return prune(graph.replaced(
        nodes=tuple(made.nodes), values=MappingProxyType(made.values), consts=MappingProxyType(made.consts)
    ))


@dataclass
class _Straight:
    """The graph that comes of it, as far as it is written."""

    source: Graph
    numerics: Numerics
    nodes: list[Node] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    consts: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values.update(self.source.values)
        self.consts.update(self.source.consts)

    def loop(self, loop: Loop) -> None:
        nodes = [self.source.nodes[i] for i in loop.nodes]
        parts = {n.outputs[0]: self.parts(n, loop) for n in nodes if border(n)[0] == "slice"}
        held = {one.now: one.initial for one in loop.carried}
        ends = self.ends(loop, nodes)
        rows: dict[str, list[str]] = {n.inputs[0]: [] for n in nodes if border(n)[0] == "stack"}
        for step in range(loop.steps):
            names = dict(held)
            names.update((part, found[step]) for part, found in parts.items())
            for node in nodes:
                side = border(node)[0]
                if side == "capture":
                    names[node.outputs[0]] = node.inputs[0]
                elif not side:
                    self.body(node, step, names, ends if step == loop.steps - 1 else {})
            for value, row in rows.items():
                row.append(names.get(value, value))
            held = {one.now: names.get(one.following, one.following) for one in loop.carried}
        for one in loop.carried:
            if held[one.now] != one.last:
                self.same(held[one.now], one.last)
        for node in nodes:
            if border(node)[0] == "stack":
                self.stack(node, rows[node.inputs[0]])

    def ends(self, loop: Loop, nodes: list[Node]) -> dict[str, str]:
        """Names that values of the last step have outside."""
        made = {o for n in nodes if not n.op.border_of_loop for o in n.outputs}
        found: dict[str, str] = {}
        for one in loop.carried:
            if one.following in made and one.following not in found:
                found[one.following] = one.last
        return found

    def parts(self, node: Node, loop: Loop) -> list[str]:
        """A tensor cut into steps, in the order of the steps."""
        source, part, steps = node.inputs[0], node.outputs[0], loop.steps
        names = [self.named(part, step) for step in range(steps)]
        if border(node)[1].reverse:
            names.reverse()
        held = self.source.const(source)
        if held is not None:
            for name, array in zip(names, np.split(held, steps), strict=True):
                self.constant(name, array, self.values[part])
        elif steps == 1:
            self.same(source, names[0])
        else:
            self.values.update({name: replace(self.values[part], id=name) for name in names})
            op = OPS["split"](sizes=(self.values[part].type.shape[0],) * steps, axis=0)
            self.nodes.append(self.like(node, op, (source,), tuple(names)))
        return names[::-1] if border(node)[1].reverse else names

    def body(self, node: Node, step: int, names: dict[str, str], ends: Mapping[str, str]) -> None:
        """A node of one step, or constants."""
        inputs = tuple(names.get(i, i) for i in node.inputs)
        for o in filter(None, node.outputs):
            names[o] = ends.get(o) or self.named(o, step)
            self.values[names[o]] = replace(self.values[o], id=names[o])
        made = replace(node, inputs=inputs, outputs=tuple(names.get(o, o) for o in node.outputs))
        view = Graph((), (), (), self.values, self.consts)
        arrays = [view.const(i) for i in inputs]
        if any(a is None for a, i in zip(arrays, inputs, strict=True) if i):
            self.nodes.append(made)
            return
        results = forms.computed(view.site(made), arrays, self.numerics) if made.is_integer else (
            made.op.clipped(*arrays)
        )
        for o, array in zip(made.outputs, results, strict=False):
            if o in self.source.outputs or o in ends.values():
                fixed = self.named(o, step)
                self.constant(fixed, np.asarray(array), self.values[o])
                self.same(fixed, o)
            elif o:
                self.constant(o, np.asarray(array), self.values[o])

    def stack(self, node: Node, rows: list[str]) -> None:
        ordered = rows[::-1] if border(node)[1].reverse else rows
        if len(ordered) == 1:
            self.same(ordered[0], node.outputs[0])
        else:
            self.nodes.append(self.like(node, OPS["concat"](axis=0), tuple(ordered), node.outputs))

    def same(self, source: str, result: str) -> None:
        """A value under another name."""
        self.values[result] = replace(self.values[source], id=result, const=None)
        op = OPS["reshape"](self.values[result].type.shape)
        self.nodes.append(Node(op, (source,), (result,), params=() if self.coded(result) else None))

    def like(self, node: Node, op: Op, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Node:
        return Node(op, inputs, outputs, node.origin, node.params)

    def coded(self, value: str) -> bool:
        return self.values[value].quant is not None

    def constant(self, name: str, array: Array, like: Value) -> None:
        value, entry = constant(name, array, like.quant)
        self.values[name] = replace(value, type=like.type)
        self.consts.update(entry)

    def named(self, value: str, step: int) -> str:
        """A value's name in one step."""
        name = f"{value}@{step}"
        while name in self.source.values:
            name += "'"
        return name
