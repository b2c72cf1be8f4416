"""Nodes of a graph one after the other on tensors of PyTorch, those of loops once a step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from npuflow.ir.graph import Graph
from npuflow.ir.loops import Loop, border, borders, loops, side_of, units
from npuflow.ir.op import Node

Tensors = Mapping[str, Any]


def walked(
    graph: Graph, values: dict[str, Any], run: Callable[[Node, Tensors], Tensors],
    read: Callable[[Node, Tensors], Any], keep: Collection[str],
) -> None:
    """Run all nodes; `values` gains the results, and loses what is read no more, but for `keep`. Tensors have
    samples along a first dimension, which is 1 for constants. `run`: the results of a node; `read`: its first
    operand."""
    last = {v: i for i, node in enumerate(graph.nodes) for v in node.inputs if v}
    first, at = {loop.nodes[0]: loop for loop in loops(graph)}, 0
    while at < len(graph.nodes):
        loop = first.get(at)
        stop = at + 1 if loop is None else loop.nodes[-1] + 1
        if loop is None:
            values.update(run(graph.nodes[at], values))
        else:
            values.update(_looped(graph, loop, values, run, read))
        for value in {v for i in range(at, stop) for v in graph.nodes[i].inputs}:
            if at <= last.get(value, -1) < stop and value not in keep:
                values.pop(value, None)
        at = stop


def _looped(
    graph: Graph, loop: Loop, outer: Tensors, run: Callable[[Node, Tensors], Tensors],
    read: Callable[[Node, Tensors], Any],
) -> dict[str, Any]:
    """What the borders of a loop give."""
    ends = list(borders(graph, loop))
    body = [i for i in loop.nodes if not side_of(graph.nodes[i], loop)]
    before = {n.outputs[0]: n for side, _, n in ends if side == "carry"}
    leaving = [n for side, _, n in ends if side in ("last", "stack")]
    held = {name: read(node, outer) for name, node in before.items()}
    rows: dict[str, list[Any]] = {n.outputs[0]: [] for n in leaving}
    for step in range(loop.steps):
        values = dict(held)
        for side, own, node in ends:
            if side == "slice":
                at = loop.steps - 1 - step if own.reverse else step
                values[node.outputs[0]] = read(node, outer).unflatten(1, (loop.steps, -1)).select(1, at)
            elif side == "capture":
                values[node.outputs[0]] = read(node, outer)
        for one in units(body, loop.inner):
            if isinstance(one, Loop):
                values.update(_looped(graph, one, values, run, read))
            else:
                values.update(run(graph.nodes[one], values))
        made = {n.outputs[0]: read(n, values) for n in leaving}
        for name, tensor in made.items():
            rows[name].append(tensor)
        held = {one.now: made[one.last] for one in loop.carried}
    return {n.outputs[0]: _given(n, rows[n.outputs[0]]) for n in leaving}


def _given(node: Node, rows: Sequence[Any]) -> Any:
    """The last step's value, or those of all steps one behind the other."""
    side, own = border(node)
    if side == "last":
        return rows[-1]
    ordered = rows[::-1] if own.reverse else rows
    count = max(len(row) for row in ordered)
    ordered = [row.expand(count, *row.shape[1:]) for row in ordered]
    return torch.stack(ordered, 1) if ordered[0].dim() == 1 else torch.cat(ordered, 1)
