"""Runs the loops of a graph on whole tensors: the body's nodes as one stretch of calls, once a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.loops import Loop, borders, loops, side_of, stack
from npuflow.ir.types import Array
from npuflow.place.partition import Segment
from npuflow.whole.execute.stretch import Stretch

Values = Mapping[str, list[Array]]


def split(
    graph: Graph, part: Segment, within: Sequence[Loop] | None = None
) -> Iterator[Segment | Loop]:
    """A segment as loops and what stands between them, in order. `within`: the loops, if not the graph's."""
    found = loops(graph) if within is None else within
    owner = {i: loop for loop in found for i in loop.nodes}
    numbers: list[int] = []
    for i in part.numbers:
        loop = owner.get(i)
        if loop is None:
            numbers.append(i)
        elif i == loop.nodes[0]:
            if numbers:
                yield segment(graph, numbers, part)
            numbers = []
            yield loop
    if numbers:
        yield segment(graph, numbers, part)


def segment(graph: Graph, numbers: Sequence[int], whole: Segment) -> Segment:
    """Some nodes of a segment as one of their own, which gives all that other nodes or the caller read."""
    nodes = tuple(graph.nodes[i] for i in numbers)
    made = {o for n in nodes for o in n.outputs if o}
    read = dict.fromkeys(
        v for n in nodes for v in n.inputs if v and v not in made and graph.const(v) is None
    )
    inside = set(numbers)
    others = {v for i, n in enumerate(graph.nodes) if i not in inside for v in n.inputs}
    others |= {*graph.outputs, *whole.outputs}
    given = tuple(v for n in nodes for v in n.outputs if v in others)
    return replace(whole, numbers=tuple(numbers), nodes=nodes, inputs=tuple(read), outputs=given)


class LoopRun:
    """A loop bound to arrays for a number of samples. `keep`: its body's values are given too, stacked."""

    def __init__(self, graph: Graph, loop: Loop, numerics: Numerics, count: int, keep: bool) -> None:
        self.graph, self.loop, self.count, self.keep = graph, loop, count, keep
        self.borders = list(borders(graph, loop))
        self.stacked = {n.inputs[0] for side, _, n in self.borders if side == "stack"}
        body = tuple(i for i in loop.nodes if not side_of(graph.nodes[i], loop))
        self.parts: list[tuple[Segment, Stretch] | LoopRun] = [
            LoopRun(graph, one, numerics, count, keep) if isinstance(one, Loop)
            else (one, Stretch(graph, one, numerics, count, keep))
            for one in split(graph, Segment("npu", body, (), (), ()), loop.inner)
        ]

    def run(self, outer: Values) -> dict[str, list[Array]]:
        held = {one.now: self._value(one.initial, outer) for one in self.loop.carried}
        whole = {
            n.outputs[0]: [np.split(a, self.loop.steps) for a in self._value(n.inputs[0], outer)]
            for side, _, n in self.borders if side == "slice"
        }
        same = {
            n.outputs[0]: self._value(n.inputs[0], outer) for side, _, n in self.borders if side == "capture"
        }
        backward = {n.outputs[0] for side, own, n in self.borders if side == "slice" and own.reverse}
        rows: dict[str, list[list[Array]]] = {}
        for step in range(self.loop.steps):
            at = {v: self.loop.steps - 1 - step if v in backward else step for v in whole}
            values = {**held, **same, **{v: [p[at[v]] for p in parts] for v, parts in whole.items()}}
            values.update(self._step(values))
            for name, arrays in values.items():
                if self.keep or name in self.stacked:
                    rows.setdefault(name, []).append(arrays)
            held = {one.now: self._value(one.following, values) for one in self.loop.carried}
        return self._made(rows, held)

    def _step(self, values: Values) -> dict[str, list[Array]]:
        """One run of the body."""
        made: dict[str, list[Array]] = {}
        for one in self.parts:
            known = {**values, **made}
            made.update(one.run(known) if isinstance(one, LoopRun) else self._stretch(*one, known))
        return made

    def _stretch(self, part: Segment, bound: Stretch, values: Values) -> dict[str, list[Array]]:
        """What nodes of the body make that stand behind each other."""
        for name in part.inputs:
            for b, array in enumerate(values[name]):
                bound.held[name].logical[b] = array
        bound.run()
        shown = part.outputs if not self.keep else [o for n in part.nodes for o in n.outputs if o]
        return {v: [a.copy() for a in bound.held[v].logical] for v in shown}

    def _made(
        self, rows: Mapping[str, Sequence[list[Array]]], held: Values
    ) -> dict[str, list[Array]]:
        """What the loop's borders give, and the values of its body where they are kept."""
        made = {one.last: held[one.now] for one in self.loop.carried}
        for side, own, node in self.borders:
            if side == "stack":
                steps = rows.get(node.inputs[0]) or [self._value(node.inputs[0], {})] * self.loop.steps
                ordered = steps[::-1] if own.reverse else steps
                made[node.outputs[0]] = [stack([s[b] for s in ordered]) for b in range(self.count)]
        for value, steps in rows.items() if self.keep else ():
            made[value] = [stack([s[b] for s in steps]) for b in range(self.count)]
        return made

    def _value(self, name: str, values: Values) -> list[Array]:
        if name in values:
            return values[name]
        held = self.graph.const(name)
        assert held is not None, name
        return [held] * self.count
