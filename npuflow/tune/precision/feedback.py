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
    """An unrolled recurrent layer reads another input in every step. A layer whose weights are shared over
    the depth of the network reads at most the same input again, such as a mask: errors add up as in any
    network of that depth. Three applications tell them apart."""
    applied: dict[str, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        own = graph.values[node.inputs[1]].const if len(node.inputs) > 1 and node.inputs[1] else None
        matrix = own and len(graph.type(node.inputs[1]).shape) > 1
        if own and matrix and node.op.channel_axis(graph.site(node), 1) is not None:
            applied.setdefault(own, []).append(index)
    for first, *later in (some for some in applied.values() if len(some) > 2):
        behind = _dependents(graph, first)
        second = next((i for i in later if behind.intersection(graph.nodes[i].inputs)), None)
        if second is None:
            continue
        last = _dependents(graph, second)
        third = next((i for i in later if last.intersection(graph.nodes[i].inputs)), None)
        if third is None:
            continue
        before = _inputs_between(graph, first, second, behind)
        if _inputs_between(graph, second, third, last) - before - behind:
            return f"{graph.nodes[second].name} takes its own results"
    return ""


def _dependents(graph: Graph, index: int) -> set[str]:
    """The results of a node, and all values that depend on them."""
    found = set(graph.nodes[index].outputs)
    for node in graph.nodes[index + 1 :]:
        if found.intersection(node.inputs):
            found.update(node.outputs)
    return found


def _inputs_between(graph: Graph, first: int, last: int, dependents: set[str]) -> set[str]:
    """What nodes on the paths from one node to another read, constants left out."""
    wanted, found = set(graph.nodes[last].inputs), set[str]()
    for node in reversed(graph.nodes[first + 1 : last]):
        if wanted.intersection(node.outputs) and dependents.intersection(node.inputs):
            wanted.update(node.inputs)
            found.update(i for i in node.inputs if i and graph.const(i) is None)
    return found
