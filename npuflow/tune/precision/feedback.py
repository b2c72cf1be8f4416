"""Recognises networks that read their own results again, whose budget is stricter.
Between runs or from step to step, errors add up.
"""

from __future__ import annotations

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
    loop, or in a layer written out step by step). Empty: nothing."""
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
    readers: dict[str, int] = {}
    for node in graph.nodes:
        for i in node.inputs[1:2]:
            digest = graph.values[i].const if i else None
            if digest and len(graph.type(i).shape) > 1:
                readers[digest] = readers.get(digest, 0) + 1
    shared = {digest for digest, count in readers.items() if count > 1}
    met: dict[str, frozenset[str]] = {}
    for node in graph.nodes if shared else ():
        found = frozenset[str]().union(*(met.get(i, frozenset()) for i in node.inputs))
        own = graph.values[node.inputs[1]].const if len(node.inputs) > 1 and node.inputs[1] else None
        if own in found and node.op.channel_axis(graph.site(node), 1) is not None:
            return f"{node.name} takes its own results"
        if own in shared:
            found |= {own}
        met.update(dict.fromkeys(node.outputs, found))
    return ""
