"""Recognises networks that read their own results again, whose budget is stricter.
Between runs or from step to step, errors add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from npuflow.ir.graph import Graph
from npuflow.ir.loops import loops
from npuflow.strategies import Budget
from npuflow.tune.precision.config import BudgetTable


def budget_of(table: BudgetTable, graph: Graph) -> Budget:
    """The table's budget; `state_db` where that is more and the network feeds back, for
    which no layer leaves the NPU."""
    budget = table.budget
    if not feedback(graph):
        return budget
    return replace(budget, sqnr_db=max(table.sqnr_db, table.state_db), host_db=table.sqnr_db)


def feedback(graph: Graph) -> str:
    """What is taken again: an output that has the type of an input and depends on it, beside other inputs and
    outputs (a state that the next run takes), or a constant matrix that its own results meet again (in a
    loop, or in a layer written out step by step, three times or more). Empty: nothing."""
    return _state(graph) or _looped(graph) or _repeated(graph)


def _state(graph: Graph) -> str:
    if len(graph.inputs) < 2 or len(graph.outputs) < 2:
        return ""
    reached: dict[str, frozenset[str]] = {i: frozenset((i,)) for i in graph.inputs}
    for node in graph.nodes:
        found = frozenset[str]().union(*(reached.get(i, frozenset()) for i in node.inputs))
        reached.update(dict.fromkeys(node.outputs, found))
    types = {i: graph.type(i) for i in graph.inputs}
    for output in graph.outputs:
        if any(types[i] == graph.type(output) for i in reached.get(output, ())):
            return f'"{output}" is an input of the next run'
    return ""


def _looped(graph: Graph) -> str:
    for loop in loops(graph):
        met = {one.now: frozenset[str]() for one in loop.carried}
        following = {one.following for one in loop.carried}
        for node in (graph.nodes[i] for i in loop.nodes):
            if not any(i in met for i in node.inputs):
                continue
            found = frozenset[str]().union(*(met.get(i, frozenset()) for i in node.inputs))
            weight = graph.const(node.inputs[1]) if len(node.inputs) > 1 else None
            if weight is not None and node.op.channel_axis(graph.site(node), 1) is not None:
                found |= {node.name}
            met.update((o, found | met.get(o, frozenset())) for o in node.outputs)
        name = next((min(met[v]) for v in following if met.get(v)), "")
        if name:
            return f"{name} takes its own results"
    return ""


def _repeated(graph: Graph) -> str:
    """A layer written out step by step meets something else in every step. One that a network applies again
    as its next layer, as some transformers do, meets at most what the one before did, such as a mask: it is
    no deeper than other networks of so many layers."""
    applied: dict[str, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        own = graph.values[node.inputs[1]].const if len(node.inputs) > 1 and node.inputs[1] else None
        matrix = own and len(graph.type(node.inputs[1]).shape) > 1
        if own and matrix and node.op.channel_axis(graph.site(node), 1) is not None:
            applied.setdefault(own, []).append(index)
    for some in applied.values():
        chain, behind = [some[0]], [_behind(graph, some[0])]
        for index in some[1:]:
            if len(chain) < 3 and behind[-1].intersection(graph.nodes[index].inputs):
                chain.append(index)
                behind.append(_behind(graph, index))
        if len(chain) == 3:
            first, second = (_met(graph, behind, chain, n) for n in range(2))
            if second - first:
                return f"{graph.nodes[chain[1]].name} takes its own results"
    return ""


def _behind(graph: Graph, index: int) -> set[str]:
    """Values that depend on what a node makes, its own results among them."""
    found = set(graph.nodes[index].outputs)
    for node in graph.nodes[index + 1 :]:
        if found.intersection(node.inputs):
            found.update(node.outputs)
    return found


def _met(graph: Graph, behind: Sequence[set[str]], chain: Sequence[int], n: int) -> set[str]:
    """What enters between two applications of a layer, and depends on none of them."""
    inside, wanted = behind[n], set(graph.nodes[chain[n + 1]].inputs)
    entering = set[str]()
    for node in reversed(graph.nodes[chain[n] + 1 : chain[n + 1]]):
        if wanted.intersection(node.outputs) and inside.intersection(node.inputs):
            wanted.update(node.inputs)
            entering.update(i for i in node.inputs if i and graph.const(i) is None)
    return entering - behind[0]
